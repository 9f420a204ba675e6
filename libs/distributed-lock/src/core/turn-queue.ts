import type { Clock } from './clock.js';
import { startWait, type Wait, type WaitEnd, type WaitLimit } from './wait.js';

/**
 * First come, first served: at most one caller has the turn, the others wait in order. Whoever got the turn passes it
 * on exactly once; a waiter that gives up leaves nothing behind.
 */
export class TurnQueue {
  #taken = false;
  readonly #waiting = new Set<Wait>();

  constructor(private readonly clock: Clock) {}

  get idle(): boolean {
    return !this.#taken;
  }

  /** True when the caller now has the turn. */
  tryTake(): boolean {
    if (this.#taken) return false;
    this.#taken = true;
    return true;
  }

  /** `woken` means that the caller now has the turn. */
  take(limit: WaitLimit): Promise<WaitEnd> {
    if (this.tryTake()) return Promise.resolve('woken');
    return new Promise((resolve) => {
      const wait = startWait(this.clock, limit, (end) => {
        if (end !== 'woken') queueMicrotask(() => this.#waiting.delete(wait));
        resolve(end);
      });
      this.#waiting.add(wait);
    });
  }

  /** The turn goes straight to the longest waiter, so that a newcomer cannot slip in between. */
  pass(): void {
    for (const next of this.#waiting) {
      this.#waiting.delete(next);
      if (next.wake()) return;
    }
    this.#taken = false;
  }
}
