import {
  hasCode,
  jittered,
  pause,
  requireDurationMs,
  runOutside,
  withinTime,
  type Clock,
  type Lease,
  type LockService,
  type Timer,
} from '../core/index.js';
import type { IdempotencyListeners } from './idempotency-events.js';
import type { IdempotencyStore } from './idempotency-store.js';
import type { Running } from './running.js';

export interface PurgeOptions {
  /** Records to delete in one statement. Default 1 000. */
  readonly batchSize?: number;
  /** Between two batches, so that other writers get their turn, in milliseconds. Default 50. */
  readonly pauseMs?: number;
  /** Ends the purge after the present batch. */
  readonly signal?: AbortSignal;
}

interface Batches {
  readonly batchSize: number;
  readonly pauseMs: number;
  readonly signals: readonly AbortSignal[];
}

const PURGE_KEY = 'idempotency-purge';
const PURGE_SUBJECT = { key: PURGE_KEY, label: PURGE_KEY };
const BATCH_TIMEOUT_MS = 10_000;

/** Deletes expired records, on demand and regularly, until the service closes. */
export class Purges {
  #timer: Timer | undefined;

  constructor(
    private readonly store: IdempotencyStore,
    private readonly clock: Clock,
    private readonly running: Running,
    private readonly listeners: IdempotencyListeners,
  ) {}

  /** The lock is between processes, and none of them waits for it. */
  async purge(locks: LockService, options: PurgeOptions): Promise<number> {
    const { batchSize = 1_000, pauseMs = 50, signal } = options;
    requireDurationMs('pauseMs', pauseMs, { atLeast: 0 });
    requireDurationMs('batchSize', batchSize, { atLeast: 1 });
    const { closing } = this.running;
    const batches = { batchSize, pauseMs, signals: signal ? [signal, closing] : [closing] };
    const purge = async (lease: Lease): Promise<number> => {
      const records = await this.#purge(lease, batches);
      this.listeners.tell(PURGE_SUBJECT, { type: 'purged', records });
      return records;
    };
    try {
      return await this.running.duringPurge(() =>
        locks.withLock(PURGE_KEY, { waitMs: 0, scope: 'global' }, purge),
      );
    } catch (error) {
      if (hasCode(error, 'LOCK_TIMEOUT')) return 0; // another process is at it
      throw error;
    }
  }

  /** The next one is planned when this one has ended, so that no two overlap. */
  planEvery(everyMs: number, locks: LockService, options: PurgeOptions): void {
    if (this.running.closing.aborted) return;
    const run = async (): Promise<void> => {
      await this.purge(locks, options).catch((cause: unknown) =>
        this.listeners.tell(PURGE_SUBJECT, { type: 'purge-failed', cause }),
      );
      this.planEvery(everyMs, locks, options);
    };
    this.#timer?.cancel();
    this.#timer = this.clock.schedule(jittered(everyMs), () => runOutside(() => void run()));
    this.#timer.unref?.();
  }

  stopPlan(): void {
    this.#timer?.cancel();
  }

  async #purge(lease: Lease, { batchSize, pauseMs, signals }: Batches): Promise<number> {
    let purged = 0;
    for (let batch = batchSize; batch >= batchSize && !signals.some(({ aborted }) => aborted);) {
      lease.assertHeld();
      batch = await withinTime(this.clock, BATCH_TIMEOUT_MS, () =>
        this.store.purge(batchSize, BATCH_TIMEOUT_MS),
      );
      purged += batch;
      if (batch >= batchSize) await pause(this.clock, { timeoutMs: pauseMs, signals });
    }
    return purged;
  }
}
