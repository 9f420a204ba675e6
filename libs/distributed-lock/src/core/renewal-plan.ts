import { jittered } from './wait.js';

/** An unanswered renewal is repeated no sooner than this: attempts would pile up before the deadline otherwise. */
const RETRY_FLOOR_SHARE = 1 / 30;

/** When a lease is renewed next, and with which ttl. */
export class RenewalPlan {
  /** What the next renewal asks for. */
  ttlMs: number;
  dueAtMs = 0;
  #confirmedTtlMs = 0;

  constructor(sentAtMs: number, ttlMs: number) {
    this.ttlMs = ttlMs;
    this.confirmed(sentAtMs, ttlMs);
  }

  /** The ttl that the present deadline rests on. A shorter one counts before it is confirmed, a longer one does not. */
  get reliableTtlMs(): number {
    return Math.min(this.ttlMs, this.#confirmedTtlMs);
  }

  /** The longest that the store may keep the key without another renewal. */
  get longestTtlMs(): number {
    return Math.max(this.ttlMs, this.#confirmedTtlMs);
  }

  confirmed(sentAtMs: number, ttlMs: number): void {
    this.#confirmedTtlMs = ttlMs;
    this.dueAtMs = sentAtMs + ttlMs / 3;
  }

  unanswered(nowMs: number, remainingMs: number): void {
    const delayMs = jittered(Math.max(remainingMs / 4, this.reliableTtlMs * RETRY_FLOOR_SHARE));
    this.dueAtMs = nowMs + delayMs;
  }
}
