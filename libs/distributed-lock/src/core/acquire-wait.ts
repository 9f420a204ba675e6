import { readInstant, type Clock, type Instant } from './clock.js';
import { LockTimeoutError, ShuttingDownError, StoreUnavailableError } from './errors.js';
import type { LockSubject } from './lock-events.js';
import type { LockTiming } from './lock-options.js';
import type { Busy } from './lock-store.js';
import type { WaitLimit } from './wait.js';

/** The store said nothing that can be relied on: an error, or no answer in time. */
export interface Unanswered {
  readonly kind: 'unanswered';
  readonly cause: unknown;
}

/** A last try at the very end of `waitMs` needs this long to be answered at all. */
export const SHORTEST_TRY_MS = 250;
const SINGLE_TRY_MS = 1_000;
/** A try that hangs for longer is worth another one, perhaps on a new connection. */
const LONGEST_TRY_MS = 2_000;

/** The patience of one caller: how long it waits, what cuts it short, and what it is told in the end. */
export class AcquireWait {
  tries = 0;
  triedAt: Instant;
  /** What ends a try that is under way. A shutdown does not: its answer is waited for, and given back. */
  readonly ownSignals: readonly AbortSignal[];
  readonly #startedAtMs: number;
  readonly #signals: readonly AbortSignal[];

  constructor(
    private readonly clock: Clock,
    private readonly wanted: LockSubject & LockTiming & { readonly signal?: AbortSignal },
    private readonly closing: AbortSignal,
  ) {
    this.triedAt = readInstant(clock);
    this.#startedAtMs = this.triedAt.monotonicMs;
    this.ownSignals = wanted.signal ? [wanted.signal] : [];
    this.#signals = [...this.ownSignals, closing];
  }

  get waitedMs(): number {
    return this.clock.monotonicMs() - this.#startedAtMs;
  }

  get remainingMs(): number {
    return Math.max(0, this.wanted.waitMs - this.waitedMs);
  }

  get limit(): WaitLimit {
    return { timeoutMs: this.remainingMs, signals: this.#signals };
  }

  /** Notes the moment before a command is sent, and says how long its answer may take. */
  beginTry(): number {
    this.tries += 1;
    this.triedAt = readInstant(this.clock);
    const patienceMs = this.wanted.waitMs === 0 ? SINGLE_TRY_MS : Math.max(this.remainingMs, SHORTEST_TRY_MS);
    return Math.min(patienceMs, this.wanted.ttlMs / 2, LONGEST_TRY_MS);
  }

  /** How long ago the present try was sent. */
  get triedForMs(): number {
    return this.clock.monotonicMs() - this.triedAt.monotonicMs;
  }

  get aborted(): boolean {
    return this.#signals.some((signal) => signal.aborted);
  }

  /** @throws what {@link abortion} says */
  refuseIfAborted(): void {
    if (this.aborted) throw this.abortion();
  }

  /** What the caller is told when its signal or the shutdown ended the wait. */
  abortion(): unknown {
    const { signal } = this.wanted;
    return signal?.aborted ? signal.reason : shuttingDown(this.wanted);
  }

  /** What the caller is told when its time is over, by what the store said last. */
  error(last: Busy | Unanswered): LockTimeoutError | StoreUnavailableError {
    const { key, store } = this.wanted;
    const waited = `within ${Math.round(this.waitedMs)} ms (${this.tries} tries)`;
    if (last.kind === 'unanswered') {
      return new StoreUnavailableError(
        `Store "${store}" gave no answer for "${key}" ${waited}. This does not mean that the key is taken. ` +
          'The work did not start; check the server, then try again.',
        { ...this.#details(), cause: last.cause },
      );
    }
    return new LockTimeoutError(
      `Lock "${key}" stayed held by another owner ${waited}. The work did not start; try again later.`,
      { ...this.#details(), retryAfterMs: last.retryAfterMs },
    );
  }

  #details(): { key: string; store: string; waitedMs: number } {
    return { key: this.wanted.key, store: this.wanted.store, waitedMs: this.waitedMs };
  }
}

export function shuttingDown({ key, store }: LockSubject): ShuttingDownError {
  return new ShuttingDownError(
    `Lock "${key}" was not taken: this process is shutting down. The work did not start.`,
    { key, store },
  );
}

export function siblingsTookTooLong({ key, store, waitMs }: LockSubject & LockTiming): LockTimeoutError {
  return new LockTimeoutError(
    `Lock "${key}" is held by this call chain, but other calls inside the same hold took all of ${waitMs} ms. ` +
      'This one did not start.',
    { key, store, waitedMs: waitMs, retryAfterMs: null },
  );
}
