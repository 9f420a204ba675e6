import type { Lease } from './lease.js';

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
  beforeAcquire(key: { readonly key: string; readonly qualifiedKey: string; readonly store: string }): void;
  /**
   * Makes the lease's token the highest one, so that a predecessor's late write is refused even before the new owner
   * has written. Resolves at once when the fence keeps nothing for this key.
   *
   * @throws {FencedOutError} a higher token is there already
   */
  raise(lease: Lease, timeoutMs: number): Promise<void>;
}
