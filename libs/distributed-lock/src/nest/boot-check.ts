import { Logger } from '@nestjs/common';

import { LockConfigInvalidError, type LockService } from '../core/index.js';
import { labelOf, leaseParametersOf, sitesOf, type PlacedSite } from './locked-site.js';

const logger = new Logger('DistributedLock');

/** Set by `@Cron` of `@nestjs/schedule`. */
const CRON_OPTIONS = 'SCHEDULE_CRON_OPTIONS';

/**
 * Looks at the locked methods of one prototype or class.
 *
 * @throws {LockConfigInvalidError} an option cannot work with the configured stores, or a lease parameter stays empty
 */
export function checkOwner(owner: object, locks: LockService): void {
  const placed = sitesOf(owner);
  for (const { site } of placed) checkSite(site, locks);
  const outermost = new Map(placed.map((one) => [one.site.name, one]));
  for (const one of outermost.values()) {
    warnIfReplaced(owner, one);
    warnIfOnlyExclusive(owner, one);
  }
  checkLeaseParameters(owner, outermost);
}

function checkSite({ label, options }: PlacedSite['site'], locks: LockService): void {
  try {
    locks.checkOptions(options);
  } catch (cause) {
    throw new LockConfigInvalidError(`@Locked on ${label}: ${(cause as Error).message}`, { cause });
  }
}

/** Whoever replaced the method may call it or not; that cannot be seen from here. */
function warnIfReplaced(owner: object, { site, wrapper }: PlacedSite): void {
  if (functionAt(owner, site.name) === wrapper) return;
  logger.warn(
    `${site.label} has @Locked, and another decorator has put a function of its own in the method's place. ` +
      'If that one does not call the method it found, nothing is locked. Put @Locked above it; a decorator of the whole ' +
      'class always comes last, so look at what it does.',
  );
}

function warnIfOnlyExclusive(owner: object, { site }: PlacedSite): void {
  const method = functionAt(owner, site.name);
  const isCron = typeof method === 'function' && Reflect.hasMetadata(CRON_OPTIONS, method);
  if (!isCron || site.options.minHoldMs !== undefined) return;
  logger.warn(
    `${site.label} has @Cron and @Locked without minHoldMs. A lock alone does not run it once per tick: a process whose ` +
      'clock is late finds the key free again. Write minHoldMs, longer than clocks may differ and shorter than a tick.',
  );
}

function checkLeaseParameters(owner: object, locked: ReadonlyMap<string | symbol, PlacedSite>): void {
  for (const name of leaseParametersOf(owner).keys()) {
    if (locked.has(name)) continue;
    throw new LockConfigInvalidError(
      `${labelOf(owner, name)} has a @CurrentLease() parameter and no @Locked, so nothing would fill it. ` +
        'Add @Locked, or ask LockContext.lease().',
    );
  }
}

function functionAt(owner: object, name: string | symbol): unknown {
  return Object.getOwnPropertyDescriptor(owner, name)?.value;
}
