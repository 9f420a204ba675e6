import type { Clock } from './clock.js';
import { isLockError, StoreUnavailableError } from './errors.js';
import type { Lease } from './lease.js';
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
   * Makes the lease's token the highest one, so that a predecessor's late write is refused even before the new owner
   * has written. Resolves at once when the fence keeps nothing for this key.
   *
   * @throws {FencedOutError} a higher token is there already
   */
  raise(lease: Lease, timeoutMs: number): Promise<void>;
}

/** The fences of one lock service, asked as if they were one. */
export class Fences {
  readonly #fences = new Set<Fence>();

  constructor(private readonly clock: Clock) {}

  /** Returns the function that takes the fence out again. */
  add(fence: Fence): () => void {
    this.#fences.add(fence);
    return () => void this.#fences.delete(fence);
  }

  beforeAcquire(key: KeyInQuestion): void {
    for (const fence of this.#fences) fence.beforeAcquire(key);
  }

  /** @throws {StoreUnavailableError} a fence failed or did not answer, so a late write could not be refused */
  async raise(lease: Lease): Promise<void> {
    for (const fence of this.#fences) await this.#raiseOne(fence, lease);
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
