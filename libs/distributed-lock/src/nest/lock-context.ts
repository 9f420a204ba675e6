import { Injectable } from '@nestjs/common';

import {
  contextLeases,
  currentLease,
  handedOverTokens,
  isLockKey,
  labelledKey,
  LockConfigInvalidError,
  LockNotHeldError,
  matchKey,
  requireLease,
  requireToken,
  type KeyInput,
  type KeyTemplate,
  type Lease,
} from '../core/index.js';
import { currentAttempt, type Attempt } from '../idempotency/index.js';

/** A key as text or rendered, or a `lockKey()` template, which stands for the one held key that is made from it. */
export type HeldKey = KeyInput | { readonly template: KeyTemplate };

/** As text: the one that is held, or handed over, where a template was given. */
export function heldKeyText(key: HeldKey | undefined): string | undefined {
  if (key === undefined) return undefined;
  if (!isLockKey(key) || key.template.placeholders.length === 0) return labelledKey(key as KeyInput).key;
  const { template } = key;
  const matching = new Set([...held(), ...handedOverTokens()].map((one) => one.key));
  for (const text of matching) if (!matchKey(template, text)) matching.delete(text);
  if (matching.size > 1) throw ambiguous(template, [...matching]);
  return [...matching][0] ?? template.text;
}

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
  /** Undefined when nothing, or nothing on `key`, is held here; a token that was handed over is no hold. */
  lease(key?: HeldKey): Lease | undefined {
    return currentLease(heldKeyText(key));
  }

  /**
   * The fencing token of the only key that is held, or whose token was handed over to this work (`@AcceptFencingToken`,
   * `withExpectedLockToken`). Never undefined: a call without its token would not be fenced.
   *
   * @throws {LockNotHeldError} there is none
   * @throws {FencedOutError} the token that is held is not the one that was handed over
   */
  get token(): number {
    return requireToken().token;
  }

  /**
   * As {@link token}, for one of several keys.
   *
   * @throws {LockNotHeldError} there is none for `key`
   */
  tokenFor(key: HeldKey): number {
    return requireToken(heldKeyText(key)).token;
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
   * What to tell others, e.g. a payment provider, so that they do it once: the same in every attempt at this idempotent
   * call. Every lock that is held is looked at first, and the record as well.
   *
   * @throws {LockNotHeldError} this is no part of an idempotent call
   * @throws {IdempotencyLeaseLostError} another attempt may be running: the call must not be made
   */
  get idempotencyKey(): string {
    return heldAttempt().idempotencyKey;
  }

  /** A key of its own for each further call of the same body; `label` says which. Throws as {@link idempotencyKey}. */
  idempotencyKeyFor(label: string): string {
    return heldAttempt().idempotencyKeyFor(label);
  }

  /**
   * Which attempt at this idempotent call this is: 1 for the first.
   *
   * @throws {LockNotHeldError} this is no part of an idempotent call
   */
  get attempt(): number {
    return requireAttempt().attempt;
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

function requireAttempt(): Attempt {
  const attempt = currentAttempt();
  if (attempt) return attempt;
  throw new LockNotHeldError(
    'No idempotent call is under way here, so there is no idempotency key. Read it inside of a method with @Idempotent, ' +
      'or IdempotencyService.runOnce(), and before that has ended.',
  );
}

/** A holder that was stopped and wakes up too late must not make the call that the key is for. */
function heldAttempt(): Attempt {
  for (const lease of held()) lease.assertHeld();
  return requireAttempt();
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
