import {
  hasCode,
  pause,
  requireDurationMs,
  type Clock,
  type Lease,
  type LockService,
} from '../core/index.js';
import type { IdempotencyStore } from './idempotency-store.js';

export interface PurgeOptions {
  /** Records to delete in one statement. Default 1 000. */
  readonly batchSize?: number;
  /** Between two batches, so that other writers get their turn, in milliseconds. Default 50. */
  readonly pauseMs?: number;
  /** Ends the purge after the present batch. */
  readonly signal?: AbortSignal;
}

const PURGE_KEY = 'idempotency-purge';
const BATCH_TIMEOUT_MS = 10_000;

/** Deletes expired records in batches until one is not full. The lock is between processes; none of them waits for it. */
export async function purgeUnderLock(
  store: IdempotencyStore,
  clock: Clock,
  locks: LockService,
  options: PurgeOptions,
): Promise<number> {
  const { batchSize = 1_000, pauseMs = 50, signal } = options;
  requireDurationMs('pauseMs', pauseMs, { atLeast: 0 });
  requireDurationMs('batchSize', batchSize, { atLeast: 1 });
  const purge = async (lease: Lease): Promise<number> => {
    let purged = 0;
    for (let batch = batchSize; batch >= batchSize && !signal?.aborted;) {
      lease.assertHeld();
      batch = await store.purge(batchSize, BATCH_TIMEOUT_MS);
      purged += batch;
      if (batch >= batchSize) await pause(clock, { timeoutMs: pauseMs, signals: signal ? [signal] : [] });
    }
    return purged;
  };
  try {
    return await locks.withLock(PURGE_KEY, { waitMs: 0, scope: 'global' }, purge);
  } catch (error) {
    if (hasCode(error, 'LOCK_TIMEOUT')) return 0; // another process is at it
    throw error;
  }
}
