import { SHORTEST_TRY_MS, type Unanswered } from './acquire-wait.js';
import type { Clock } from './clock.js';
import type { Hold } from './hold.js';
import type { Busy } from './lock-store.js';
import { TurnQueue } from './turn-queue.js';
import { NoAnswer } from './wait.js';

/** One key as this process knows it: who waits for it here, who holds it, and what the store said last. */
export class LocalKey {
  readonly turns: TurnQueue;
  hold: Hold | undefined;
  #said: Busy | Unanswered | undefined;
  #askedAtMs: number | undefined;

  constructor(private readonly clock: Clock) {
    this.turns = new TurnQueue(clock);
  }

  asked(): void {
    this.#askedAtMs = this.clock.monotonicMs();
  }

  heard<A extends Busy | Unanswered>(answer: A): A {
    this.#said = answer;
    this.#askedAtMs = undefined;
    return answer;
  }

  heldBy(hold: Hold): void {
    this.hold = hold;
    this.#said = this.#askedAtMs = undefined;
  }

  /** What a caller is told whose time is over before it got to ask the store: a store that is away is no busy key. */
  get hearsay(): Busy | Unanswered {
    if (this.hold) return { kind: 'busy', retryAfterMs: this.hold.lease.remainingMs || null };
    const silentMs = this.#askedAtMs === undefined ? 0 : this.clock.monotonicMs() - this.#askedAtMs;
    if (silentMs >= SHORTEST_TRY_MS) return { kind: 'unanswered', cause: new NoAnswer(silentMs) };
    return this.#said ?? { kind: 'busy', retryAfterMs: null };
  }
}
