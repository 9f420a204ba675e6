import { Logger } from '@nestjs/common';

import { LockConfigInvalidError, type LockService } from '../core/index.js';
import { isAccepting, type AcceptingSite } from './accepting-site.js';
import { checkIdempotent, isIdempotent } from './idempotent/index.js';
import {
  isLocked,
  labelOf,
  leaseParametersOf,
  sitesOf,
  type LockedSite,
  type MethodSite,
  type PlacedSite,
} from './locked-site.js';

const logger = new Logger('DistributedLock');

/** Set by `@Cron` of `@nestjs/schedule`. */
const CRON_OPTIONS = 'SCHEDULE_CRON_OPTIONS';
/** Set by `@Get`, `@Post` and so on. */
const HTTP_PATH = 'path';

/**
 * Looks at the methods of one prototype or class that have our decorators.
 *
 * @throws {LockConfigInvalidError} an option cannot work with the configured stores, a lease parameter stays empty, or a
 *   token has no way to come
 */
export function checkOwner(owner: object, locks: LockService): void {
  const placed = sitesOf(owner);
  for (const { site } of placed) checkSite(owner, site, locks);
  const outermost = new Map(placed.map((one) => [one.site.name, one]));
  for (const one of outermost.values()) warnIfReplaced(owner, one);
  const locked = new Map(placed.flatMap(({ site }) => (isLocked(site) ? [[site.name, site]] : [])));
  for (const site of locked.values()) warnIfOnlyExclusive(owner, site);
  checkLeaseParameters(owner, locked);
}

function checkSite(owner: object, site: MethodSite, locks: LockService): void {
  try {
    if (isLocked(site)) locks.checkOptions(site.options);
    if (isAccepting(site)) checkAccepting(owner, site, locks);
    if (isIdempotent(site)) checkIdempotent(site, locks);
  } catch (cause) {
    throw new LockConfigInvalidError(`${site.decorator} on ${site.label}: ${(cause as Error).message}`, {
      cause,
    });
  }
}

function checkAccepting(owner: object, site: AcceptingSite, locks: LockService): void {
  if (typeof site.store === 'string') locks.checkOptions({ store: site.store });
  const method = functionAt(owner, site.name);
  if (site.from || (typeof method === 'function' && Reflect.hasMetadata(HTTP_PATH, method))) return;
  throw new LockConfigInvalidError(
    'it is no HTTP handler, so no header brings a token. Say where it comes from: { from: (data) => data.fencingToken }.',
  );
}

/** Whoever replaced the method may call it or not; that cannot be seen from here. */
function warnIfReplaced(owner: object, { site, wrapper }: PlacedSite): void {
  if (functionAt(owner, site.name) === wrapper) return;
  logger.warn(
    `${site.label} has ${site.decorator}, and another decorator has put a function of its own in the method's place. ` +
      `If that one does not call the method it found, ${site.decorator} does nothing. Put it above; a decorator of the whole ` +
      'class always comes last, so look at what it does.',
  );
}

function warnIfOnlyExclusive(owner: object, site: LockedSite): void {
  const method = functionAt(owner, site.name);
  const isCron = typeof method === 'function' && Reflect.hasMetadata(CRON_OPTIONS, method);
  if (!isCron || site.options.minHoldMs !== undefined) return;
  logger.warn(
    `${site.label} has @Cron and @Locked without minHoldMs. A lock alone does not run it once per tick: a process whose ` +
      'clock is late finds the key free again. Write minHoldMs, longer than clocks may differ and shorter than a tick.',
  );
}

function checkLeaseParameters(owner: object, locked: ReadonlyMap<string | symbol, LockedSite>): void {
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
