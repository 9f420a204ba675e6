import { readInstant, type Clock, type Instant, type Timer } from './clock.js';
import { nextLeaseState, type LeaseEvent, type LeaseState, type LossReason } from './lease-state.js';

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

/** A state that can still be renewed. */
export type LiveState = Exclude<LeaseState, { kind: 'lease-lost' | 'released' }>;

export function isLive(state: LeaseState): state is LiveState {
  return state.kind !== 'lease-lost' && state.kind !== 'released';
}

/**
 * The state of one lease, kept true by two clocks and a timer.
 *
 * The timer alone is not enough: none fires while the event loop is blocked or the process is stopped, so every reader
 * goes through {@link check}.
 */
export class LeaseLife {
  #state: LeaseState;
  #deadlineTimer: Timer | undefined;
  readonly #maxHoldTimer: Timer | undefined;
  readonly #listeners = new Set<(state: LeaseState) => void>();

  constructor(
    private readonly clock: Clock,
    times: LeaseTimes,
    private readonly onChange: (state: LeaseState) => void,
    /** Called when only the wall clock says that the lease is over: the store has to be asked. */
    private readonly onClockDoubt: () => void,
  ) {
    this.#state = { kind: 'acquired', deadline: deadlineOf(times.sentAt, times.ttlMs) };
    this.#armDeadline();
    if (times.maxHoldMs < Infinity) {
      this.#maxHoldTimer = clock.schedule(times.maxHoldMs, () => this.lose('max-hold'));
    }
  }

  /** As last known; {@link check} is the one to act on. */
  get state(): LeaseState {
    return this.#state;
  }

  get remainingMs(): number {
    const state = this.#state;
    return isLive(state) ? Math.max(0, state.deadline.monotonicMs - this.clock.monotonicMs()) : 0;
  }

  /** The state at this moment: both clocks are read first. */
  check(): LeaseState {
    const state = this.#state;
    if (!isLive(state)) return state;
    const now = readInstant(this.clock);
    if (state.deadline.monotonicMs <= now.monotonicMs)
      this.lose(isClockDoubt(state) ? 'clock-jump' : 'expired');
    else if (state.deadline.wallMs <= now.wallMs && !isClockDoubt(state)) {
      this.apply({ type: 'clocks-disagree' });
      this.onClockDoubt();
    }
    return this.#state;
  }

  renewed(sentAt: Instant, ttlMs: number): void {
    this.apply({ type: 'renewed', deadline: deadlineOf(sentAt, ttlMs) });
    if (isLive(this.#state)) this.#armDeadline();
  }

  lose(reason: LossReason): void {
    this.apply({ type: 'lost', reason });
  }

  /** State first, then whoever wants to know. */
  apply(event: LeaseEvent): void {
    const before = this.#state;
    this.#state = nextLeaseState(before, event);
    if (this.#state === before) return;
    if (!isLive(this.#state)) this.#disarm();
    this.onChange(this.#state);
    for (const listener of this.#listeners) tell(listener, this.#state);
  }

  /** Returns the function that ends the subscription. */
  listen(listener: (state: LeaseState) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #armDeadline(): void {
    this.#deadlineTimer?.cancel();
    this.#deadlineTimer = this.clock.schedule(this.remainingMs, () => {
      if (isLive(this.check())) this.#armDeadline(); // timers may fire a fraction of a millisecond early
    });
  }

  #disarm(): void {
    this.#deadlineTimer?.cancel();
    this.#maxHoldTimer?.cancel();
  }
}

function tell(listener: (state: LeaseState) => void, state: LeaseState): void {
  try {
    listener(state);
  } catch {
    // A broken listener is its author's affair; the lease goes on.
  }
}

function isClockDoubt(state: LeaseState): boolean {
  return state.kind === 'uncertain' && state.doubt === 'clocks';
}

function deadlineOf(sentAt: Instant, ttlMs: number): Instant {
  const reliableMs = ttlMs - ttlMs * DRIFT_SHARE - DRIFT_MS;
  return { monotonicMs: sentAt.monotonicMs + reliableMs, wallMs: sentAt.wallMs + reliableMs };
}
