/** A timer that was armed with {@link Clock.schedule}. Cancelling twice, or after it fired, is harmless. */
export interface Timer {
  cancel(): void;
  /** Lets the process end before the timer has fired. */
  unref?(): void;
}

/**
 * The two clocks of this process and its timers, replaceable in tests.
 *
 * Neither reading is ever sent to a store or compared with a stored time: stores judge by their own clock.
 */
export interface Clock {
  /** Milliseconds since an arbitrary start; never steps, but may stand still while a machine is suspended. */
  monotonicMs(): number;
  /** Milliseconds since 1970; may step either way. It can shorten the belief in a lease, never lengthen it. */
  wallMs(): number;
  /** Runs `run` once, no earlier than `delayMs` from now. Keeps the process alive until then, or until it is told not to. */
  schedule(delayMs: number, run: () => void): Timer;
}

/** One moment, read off both clocks. */
export interface Instant {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

/** Node turns a longer delay into 1 ms, which would make a month-long lease renew in a busy loop. */
const LONGEST_NODE_DELAY_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  schedule(delayMs, run) {
    let remainingMs = delayMs;
    let keepsAlive = true;
    let timeout: NodeJS.Timeout;
    const arm = (): void => {
      const stepMs = Math.min(remainingMs, LONGEST_NODE_DELAY_MS);
      remainingMs -= stepMs;
      timeout = setTimeout(remainingMs > 0 ? arm : run, stepMs);
      if (!keepsAlive) timeout.unref();
    };
    arm();
    const unref = (): void => {
      keepsAlive = false;
      timeout.unref();
    };
    return { cancel: () => clearTimeout(timeout), unref };
  },
};

export function readInstant(clock: Clock): Instant {
  return { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() };
}
