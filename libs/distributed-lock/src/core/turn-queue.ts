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

  /** `woken` means that the caller now has the turn. */
  async take(limit: WaitLimit): Promise<WaitEnd> {
    if (!this.#taken) {
      this.#taken = true;
      return 'woken';
    }
    const wait = startWait(this.clock, limit);
    this.#waiting.add(wait);
    const end = await wait.ended;
    if (end !== 'woken') this.#waiting.delete(wait);
    return end;
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
