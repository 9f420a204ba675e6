import type { Clock } from './clock.js';
import type { LockStore, ReleaseAnswer, ReleaseRequest } from './lock-store.js';
import { commandTimeoutMs } from './renewals.js';
import { pause, withinTime } from './wait.js';

/**
 * Gives back grants that nobody holds: the acquire or the release went unanswered, so the store may keep the key for
 * an owner that is gone. Tries until the store answers or the grant has run out by itself.
 */
export class Orphans {
  readonly #pending = new Set<Promise<void>>();
  readonly #giveUp = new AbortController();

  constructor(private readonly clock: Clock) {}

  /** One release within its time. Unanswered, it rejects and goes on behind. */
  async release(store: LockStore, request: ReleaseRequest, ttlMs: number): Promise<ReleaseAnswer> {
    const timeoutMs = commandTimeoutMs(ttlMs);
    try {
      return await withinTime(this.clock, timeoutMs, () => store.release(request, timeoutMs));
    } catch (cause) {
      this.giveBack(store, request, ttlMs);
      throw cause;
    }
  }

  giveBack(store: LockStore, request: ReleaseRequest, ttlMs: number): void {
    const done = this.#insist(store, request, ttlMs).finally(() => this.#pending.delete(done));
    this.#pending.add(done);
  }

  /** Lets running attempts finish for `timeoutMs` at the most, then stops. Never rejects. */
  async close(timeoutMs: number): Promise<void> {
    const settled = (): Promise<unknown> => Promise.allSettled([...this.#pending]);
    await withinTime(this.clock, timeoutMs, settled).catch(() => undefined); // too slow: given up below
    this.#giveUp.abort();
    await settled();
  }

  async #insist(store: LockStore, request: ReleaseRequest, ttlMs: number): Promise<void> {
    const goneAtMs = this.clock.monotonicMs() + ttlMs;
    for (let delayMs = 20; this.clock.monotonicMs() < goneAtMs; delayMs = Math.min(delayMs * 2, 1_000)) {
      try {
        const timeoutMs = commandTimeoutMs(ttlMs);
        await withinTime(this.clock, timeoutMs, () => store.release(request, timeoutMs));
        return;
      } catch {
        // The store is still away. The grant ends by itself at `goneAtMs`; until then it is worth another try.
      }
      const limit = { timeoutMs: jittered(delayMs), signals: [this.#giveUp.signal] };
      if ((await pause(this.clock, limit)) === 'aborted') return;
    }
  }
}

/** Spreads retries over half to all of `delayMs`, so that many processes do not come back in step. */
export function jittered(delayMs: number): number {
  return delayMs * (0.5 + Math.random() / 2);
}
