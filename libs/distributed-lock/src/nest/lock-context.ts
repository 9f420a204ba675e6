import { Injectable } from '@nestjs/common';

import {
  contextLeases,
  currentLease,
  isLockKey,
  labelledKey,
  LockConfigInvalidError,
  matchKey,
  requireLease,
  type KeyInput,
  type KeyTemplate,
  type Lease,
} from '../core/index.js';

/** A key as text or rendered, or a `lockKey()` template, which stands for the one held key that is made from it. */
export type HeldKey = KeyInput | { readonly template: KeyTemplate };

/**
 * What the present call chain holds. It follows the chain and not the object, so it is right in singletons and in
 * parallel calls, and says "not held" everywhere else, also once the hold has been released.
 *
 * Every reading looks at the clocks first: a holder that was stopped and wakes up too late goes no further.
 *
 * All members throw `LEASE_LOST` when the lease is over, `LEASE_UNCERTAIN` when it cannot be relied on at the moment, and
 * `LOCK_CONFIG_INVALID` when no key was named and several are held.
 */
@Injectable()
export class LockContext {
  /** Undefined when nothing, or nothing on `key`, is held. */
  lease(key?: HeldKey): Lease | undefined {
    return currentLease(textOf(key));
  }

  /**
   * The fencing token of the only key that is held. Never undefined: a call without its token would not be fenced.
   *
   * @throws {LockNotHeldError} nothing is held
   */
  get token(): number {
    return requireLease().token;
  }

  /** @throws {LockNotHeldError} `key` is not held */
  tokenFor(key: HeldKey): number {
    return requireLease(textOf(key)).token;
  }

  /**
   * Aborts when the lease is lost, and at its release.
   *
   * @throws {LockNotHeldError} nothing is held
   */
  get signal(): AbortSignal {
    return requireLease().signal;
  }

  /**
   * Returns only while every lock of the call chain can be relied on.
   *
   * @throws {LockNotHeldError} nothing is held
   */
  assertHeld(): void {
    const leases = held();
    if (leases.length === 0) requireLease();
    for (const lease of leases) lease.assertHeld();
  }
}

function textOf(key: HeldKey | undefined): string | undefined {
  if (key === undefined) return undefined;
  if (!isLockKey(key) || key.template.placeholders.length === 0) return labelledKey(key as KeyInput).key;
  const { template } = key;
  const matching = new Set(held().map((lease) => lease.key));
  for (const text of matching) if (!matchKey(template, text)) matching.delete(text);
  if (matching.size > 1) throw ambiguous(template, [...matching]);
  return [...matching][0] ?? template.text;
}

function held(): readonly Lease[] {
  return contextLeases().filter(({ state }) => state.kind !== 'released');
}

function ambiguous({ text }: KeyTemplate, keys: readonly string[]): LockConfigInvalidError {
  const names = keys.map((key) => `"${key}"`).join(', ');
  return new LockConfigInvalidError(
    `Several locks made from "${text}" are held here (${names}); render the one you mean.`,
  );
}
