import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import type { LockStore } from 'nestjs-distributed-lock';

export interface BareTtlLockOptions {
  readonly ttlMs: number;
  readonly waitMs: number;
}

const POLL_MS = 50;
const ANSWER_WITHIN_MS = 1_000;

/**
 * The lock that many write themselves: SET NX PX, the work, a compare-and-delete. Right in the store, and wrong around
 * it: nobody tells the holder that its time is over, and nobody asks for its token.
 */
export class BareTtlLock {
  constructor(
    private readonly store: LockStore,
    private readonly options: BareTtlLockOptions,
    /** For the account only: the demo counts take-overs. */
    private readonly onAcquired: (token: number) => void,
  ) {}

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const ownerId = randomBytes(16).toString('hex');
    await this.#acquire(key, ownerId);
    try {
      return await work();
    } finally {
      await this.store.release({ key, ownerId, keepForMs: 0 }, ANSWER_WITHIN_MS).catch(() => undefined);
    }
  }

  async #acquire(key: string, ownerId: string): Promise<void> {
    const { ttlMs, waitMs } = this.options;
    const givesUpAtMs = performance.now() + waitMs;
    while (performance.now() < givesUpAtMs) {
      const answer = await this.store.tryAcquire({ key, ownerId, ttlMs }, ANSWER_WITHIN_MS);
      if (answer.kind === 'granted') return this.onAcquired(answer.token);
      await sleep(POLL_MS);
    }
    throw new Error(`"${key}" is busy`);
  }
}
