import { readInstant, type Clock, type Instant, type Timer } from './clock.js';
import {
  isLive,
  nextLeaseState,
  type LeaseEvent,
  type LeaseState,
  type LiveState,
  type LossReason,
} from './lease-state.js';
import { tellQuietly } from './lock-events.js';
import { runOutside } from './section.js';

/** Share of the ttl, plus a constant, by which the store's clock may run faster than ours. */
const DRIFT_SHARE = 0.01;
const DRIFT_MS = 2;

export interface LeaseTimes {
  /** Both clocks, read before the acquire was sent. */
  readonly sentAt: Instant;
  readonly ttlMs: number;
  /** Infinity when there is no limit. */
  readonly maxHoldMs: number;
}

/**
 * The state of one lease, kept true by two clocks and a timer.
 *
 * The timer alone is not enough: none fires while the event loop is blocked or the process is stopped, so every reader
 * goes through {@link check}.
 */
export class LeaseLife {
  #state: LeaseState;
  #timer: Timer | undefined;
  /** Monotonic time of the end that no renewal moves. */
  readonly #maxHoldAtMs: number;
  readonly #listeners = new Set<(state: LeaseState) => void>();

  constructor(
    private readonly clock: Clock,
    times: LeaseTimes,
    private readonly onChange: (state: LeaseState) => void,
    /** Called when only the wall clock says that the lease is over: the store has to be asked. */
    private readonly onClockDoubt: () => void,
  ) {
    this.#state = { kind: 'acquired', deadline: deadlineOf(times.sentAt, times.ttlMs) };
    this.#maxHoldAtMs = clock.monotonicMs() + times.maxHoldMs;
    this.#armTimer();
  }

  get remainingMs(): number {
    const state = this.check();
    return isLive(state) ? this.#endsAtMs(state) - this.clock.monotonicMs() : 0;
  }

  /** The state at this moment: both clocks are read first. */
  check(): LeaseState {
    const state = this.#state;
    if (!isLive(state)) return state;
    const now = readInstant(this.clock);
    if (this.#endsAtMs(state) <= now.monotonicMs) this.lose(this.#whyOver(state));
    else if (state.deadline.wallMs <= now.wallMs && !isClockDoubt(state)) {
      this.apply({ type: 'clocks-disagree' });
      this.onClockDoubt();
    }
    return this.#state;
  }

  /** The store may carry it out and the answer be lost: a `ttlMs` that ends sooner counts from now on. */
  renewalSent(ttlMs: number): void {
    this.apply({ type: 'renewal-sent', deadline: deadlineOf(readInstant(this.clock), ttlMs) });
  }

  renewed(sentAt: Instant, ttlMs: number): void {
    this.apply({ type: 'renewed', deadline: deadlineOf(sentAt, ttlMs) });
  }

  lose(reason: LossReason): void {
    this.apply({ type: 'lost', reason });
  }

  /** State first, then whoever wants to know. */
  apply(event: LeaseEvent): void {
    const before = this.#state;
    const state = nextLeaseState(before, event);
    if (state === before) return;
    this.#state = state;
    if (!isLive(state) || !isLive(before) || state.deadline !== before.deadline) this.#armTimer();
    this.onChange(state);
    for (const listener of [...this.#listeners]) {
      if (this.#state !== state) return; // a listener went on to the next state, and all were told of that one
      tellQuietly(listener, state);
    }
  }

  /** Returns the function that ends the subscription. */
  listen(listener: (state: LeaseState) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #endsAtMs(state: LiveState): number {
    return Math.min(state.deadline.monotonicMs, this.#maxHoldAtMs);
  }

  #whyOver(state: LiveState): LossReason {
    if (this.#maxHoldAtMs <= state.deadline.monotonicMs) return 'max-hold';
    return isClockDoubt(state) ? 'clock-jump' : 'expired';
  }

  #armTimer(): void {
    this.#timer?.cancel();
    const state = this.#state;
    if (!isLive(state)) return;
    const delayMs = Math.max(0, this.#endsAtMs(state) - this.clock.monotonicMs());
    this.#timer = this.clock.schedule(delayMs, () => runOutside(() => this.#timeOver()));
  }

  #timeOver(): void {
    if (isLive(this.check())) this.#armTimer(); // timers may fire a fraction of a millisecond early
  }
}

function isClockDoubt(state: LeaseState): boolean {
  return state.kind === 'uncertain' && state.doubt === 'clocks';
}

/** How long after a command was sent its `ttlMs` can be relied on. */
export function reliableMs(ttlMs: number): number {
  return ttlMs - ttlMs * DRIFT_SHARE - DRIFT_MS;
}

function deadlineOf(sentAt: Instant, ttlMs: number): Instant {
  const forMs = reliableMs(ttlMs);
  // Rounding and the slewing of a good clock are no doubt: the wall clock gets half of the drift allowance more.
  return { monotonicMs: sentAt.monotonicMs + forMs, wallMs: sentAt.wallMs + (forMs + ttlMs) / 2 };
}
