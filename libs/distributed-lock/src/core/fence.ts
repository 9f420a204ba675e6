import type { Clock } from './clock.js';
import { isLockError, StoreUnavailableError } from './errors.js';
import type { Lease } from './lease.js';
import type { StoreName } from './lock-options.js';
import { commandTimeoutMs } from './renewals.js';
import { withinTime } from './wait.js';

/** A key on its way to be locked. */
export interface KeyInQuestion {
  readonly key: string;
  /** With namespace and scope. */
  readonly qualifiedKey: string;
  /** Name of the store as configured. */
  readonly store: string;
}

/** Where tokens come from: a store of this application, or one that only those who hand them over know, by any name. */
export type TokenOrigin = StoreName | { readonly elsewhere: string };

/** What stands for a store of another application where tokens are compared. */
export function foreignStore({ elsewhere }: { readonly elsewhere: string }) {
  return { name: elsewhere, store: { kind: 'elsewhere' } } as const;
}

/** A token that came with a call, on its way to be believed. */
export interface TokenInQuestion extends KeyInQuestion {
  /** Names the store in fence rows: tokens of two stores do not compare. */
  readonly storeId: string;
  readonly token: number;
}

/**
 * A database that remembers the highest token of each key, and refuses writes that come with a lower one.
 *
 * The lock service asks every registered fence around an acquisition; the writes themselves are the fence's affair.
 */
export interface Fence {
  /**
   * Throws when a lock may not be taken at this point of the call chain, e.g. inside an open transaction, whose snapshot
   * would be older than the lock.
   */
  beforeAcquire(key: KeyInQuestion): void;
  /**
   * Throws when a transaction is open at this point of the call chain, after which something is to be kept for good that
   * belongs to its effects. Absent where there are none.
   *
   * @throws {LockInsideTransactionError}
   */
  requireOutside?(key: string): void;
  /**
   * Makes the lease's token the highest one, so that a predecessor's late write is refused even before the new owner
   * has written. Resolves at once when the fence keeps nothing for this key.
   *
   * @throws {FencedOutError} a higher token is there already
   */
  raise(lease: Lease, timeoutMs: number): Promise<void>;
  /**
   * Returns when `token` is the highest one of its key, or has now been made it. Resolves at once when the fence keeps
   * nothing for this key. Absent where nothing is ever handed over.
   *
   * @throws {StaleTokenError} a higher token is there
   * @throws {TokenInvalidError} no store can have given it out yet
   */
  accept?(token: TokenInQuestion, timeoutMs: number): Promise<void>;
}

/** How long a fence may take to judge a token that was handed over: there is no lease that could run out meanwhile. */
const ACCEPT_TIMEOUT_MS = 5_000;

/** The fences of one lock service, asked as if they were one. */
export class Fences {
  readonly #fences = new Set<Fence>();

  constructor(private readonly clock: Clock) {}

  /** Lets a database take part in every acquisition. Returns the function that takes it out again. */
  add(fence: Fence): () => void {
    this.#fences.add(fence);
    return () => void this.#fences.delete(fence);
  }

  /** @throws {LockInsideTransactionError} one of them has a transaction open in this call chain */
  requireOutside(key: string): void {
    for (const fence of this.#fences) fence.requireOutside?.(key);
  }

  beforeAcquire(key: KeyInQuestion): void {
    for (const fence of this.#fences) fence.beforeAcquire(key);
  }

  /** @throws {StoreUnavailableError} a fence failed or did not answer, so a late write could not be refused */
  async raise(lease: Lease): Promise<void> {
    for (const fence of this.#fences) await this.#raiseOne(fence, lease);
  }

  /** @throws {StoreUnavailableError} a fence failed or did not answer, so the token may be stale */
  async accept(token: TokenInQuestion): Promise<void> {
    for (const fence of this.#fences) await this.#acceptOne(fence, token);
  }

  async #acceptOne(fence: Fence, token: TokenInQuestion): Promise<void> {
    try {
      await withinTime(this.clock, ACCEPT_TIMEOUT_MS, async () => fence.accept?.(token, ACCEPT_TIMEOUT_MS));
    } catch (cause) {
      if (isLockError(cause)) throw cause;
      throw new StoreUnavailableError(
        `The fence of "${token.key}" did not say whether token ${token.token} is the newest. The work did not start; ` +
          'check the database, then try again.',
        { key: token.key, store: token.store, cause },
      );
    }
  }

  async #raiseOne(fence: Fence, lease: Lease): Promise<void> {
    const timeoutMs = commandTimeoutMs(lease.claim.ttlMs);
    try {
      await withinTime(this.clock, timeoutMs, () => fence.raise(lease, timeoutMs));
    } catch (cause) {
      if (isLockError(cause)) throw cause;
      throw new StoreUnavailableError(
        `The fence of "${lease.key}" could not be raised, so a late write of an earlier owner could not be refused. ` +
          'The work did not start and the lock was given back; check the database, then try again.',
        { key: lease.key, store: lease.store, cause },
      );
    }
  }
}
