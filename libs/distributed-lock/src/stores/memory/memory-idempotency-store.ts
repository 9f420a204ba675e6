import { StoreUnavailableError, systemClock, type Clock } from '../../core/index.js';
import {
  ABSENT,
  nextRecordState,
  sameRequest,
  type ClaimAnswer,
  type IdempotencyStore,
  type RecordClaim,
  type RecordEnding,
  type RecordRenewal,
  type RecordState,
  type RecordStep,
  type StoredRecord,
  type StoredResult,
} from '../../idempotency/index.js';

export interface MemoryIdempotencyStoreOptions {
  /** The most records to keep. Beyond it new calls are refused: forgetting an answer would do the work twice. Default 10 000. */
  readonly maxRecords?: number;
  /** The most characters of stored results to keep. Default 64 Mi. */
  readonly maxStoredCharacters?: number;
  /** Replaces both clocks, for tests. */
  readonly clock?: Clock;
}

/**
 * Idempotency records of this one process: exact, and gone with it. For tests, and for applications with a single replica
 * whose clients do not come back after a restart.
 */
export function memoryIdempotencyStore(options: MemoryIdempotencyStoreOptions = {}): IdempotencyStore {
  return new MemoryIdempotencyStore(options);
}

interface Kept {
  readonly state: RecordState;
  readonly label: string;
  /** Infinity unless running. */
  readonly leaseEndsAtMs: number;
  readonly expiresAtMs: number;
}

type Times = Pick<Kept, 'expiresAtMs'> & Partial<Kept>;

class MemoryIdempotencyStore implements IdempotencyStore {
  readonly kind = 'memory';
  readonly minLeaseMs = 1;
  readonly purgesItself = true;
  readonly #records = new Map<string, Kept>();
  readonly #clock: Clock;
  #characters = 0;
  #lastFence = 0;

  constructor(private readonly options: MemoryIdempotencyStoreOptions) {
    this.#clock = options.clock ?? systemClock;
  }

  claim(claim: RecordClaim): Promise<ClaimAnswer> {
    const nowMs = this.#nowMs();
    const { id, ownerId, fingerprint, takeOver, maxAttempts, label } = claim;
    const { state } = this.#present(id);
    if (state === ABSENT && !this.#hasRoom()) return Promise.reject(this.#full());
    const clockFence = this.#clockFence();
    const next = nextRecordState(state, {
      type: 'claim',
      ownerId,
      clockFence,
      fingerprint,
      takeOver,
      maxAttempts,
    });
    const expiresAtMs = nowMs + claim.leaseMs + claim.keepMs;
    if (next !== state) this.#put(id, next, { label, leaseEndsAtMs: nowMs + claim.leaseMs, expiresAtMs });
    return Promise.resolve(this.#answer(claim, next));
  }

  renew({ id, ownerId, leaseMs, keepMs }: RecordRenewal): Promise<'renewed' | 'lost'> {
    const nowMs = this.#nowMs();
    const times = { leaseEndsAtMs: nowMs + leaseMs, expiresAtMs: nowMs + leaseMs + keepMs };
    return Promise.resolve(this.#step(id, { type: 'renew', ownerId }, times) ? 'renewed' : 'lost');
  }

  settle(id: string, ownerId: string, ending: RecordEnding): Promise<'settled' | 'refused'> {
    const { state, expiresAtMs } = this.#present(id);
    if (state.kind === 'done' && state.ownerId === ownerId && ending.kind === 'done')
      return Promise.resolve('settled');
    const times = { expiresAtMs: 'keepMs' in ending ? this.#nowMs() + ending.keepMs : expiresAtMs };
    return Promise.resolve(this.#step(id, stepOf(ownerId, ending), times) ? 'settled' : 'refused');
  }

  resolve(id: string, result: StoredResult, keepMs: number): Promise<'resolved' | 'refused'> {
    const times = { expiresAtMs: this.#nowMs() + keepMs };
    return Promise.resolve(this.#step(id, { type: 'resolve', result }, times) ? 'resolved' : 'refused');
  }

  forget(id: string): Promise<'forgotten' | 'running' | 'absent'> {
    const { state } = this.#present(id);
    if (state === ABSENT) return Promise.resolve('absent');
    return Promise.resolve(this.#step(id, { type: 'forget' }, { expiresAtMs: 0 }) ? 'forgotten' : 'running');
  }

  read(id: string): Promise<StoredRecord | null> {
    const { state, label, leaseEndsAtMs, expiresAtMs } = this.#present(id);
    if (state === ABSENT) return Promise.resolve(null);
    return Promise.resolve({
      state: state.kind,
      attempt: state.kind === 'absent' ? state.attempts : state.attempt,
      fence: state.fence,
      fingerprint: state.kind === 'absent' ? '' : state.fingerprint,
      label,
      leaseRemainingMs: state.kind === 'running' ? leaseEndsAtMs - this.#nowMs() : null,
      expiresInMs: expiresAtMs - this.#nowMs(),
      result: state.kind === 'done' ? state.result : null,
    });
  }

  purge(limit: number): Promise<number> {
    const expired = [...this.#records].filter(([, { expiresAtMs }]) => expiresAtMs <= this.#nowMs());
    expired.sort(([, a], [, b]) => a.expiresAtMs - b.expiresAtMs);
    const doomed = expired.slice(0, limit);
    for (const [id] of doomed) this.#delete(id);
    return Promise.resolve(doomed.length);
  }

  /** Ends nothing: two applications of one process may share the store. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  /** The record as it is now: what only the passing of time has done to it is done here. */
  #present(id: string): Kept {
    const kept = this.#records.get(id);
    if (!kept || kept.expiresAtMs <= this.#nowMs()) return NOTHING;
    if (kept.leaseEndsAtMs > this.#nowMs()) return kept;
    return { ...kept, state: nextRecordState(kept.state, { type: 'lease-ended' }) };
  }

  #step(id: string, step: RecordStep, times: Times): boolean {
    const { state } = this.#present(id);
    const next = nextRecordState(state, step);
    if (next === state) return false;
    this.#put(id, next, times);
    return true;
  }

  #put(id: string, state: RecordState, times: Times): void {
    const { label } = this.#records.get(id) ?? NOTHING;
    this.#delete(id);
    if (state.kind === 'absent' && state.attempts === 0) return;
    const leaseEndsAtMs = state.kind === 'running' ? (times.leaseEndsAtMs ?? Infinity) : Infinity;
    this.#records.set(id, { label, ...times, state, leaseEndsAtMs });
    this.#characters += charactersOf(state);
  }

  #delete(id: string): void {
    const kept = this.#records.get(id);
    if (kept) this.#characters -= charactersOf(kept.state);
    this.#records.delete(id);
  }

  #answer(claim: RecordClaim, state: RecordState): ClaimAnswer {
    if (state.kind === 'running' && state.ownerId === claim.ownerId) {
      const { fence, attempt, takenOver } = state;
      return { kind: 'claimed', fence, attempt, takenOver };
    }
    if (state.kind === 'absent' || !sameRequest(state.fingerprint, claim.fingerprint))
      return { kind: 'mismatch' };
    if (state.kind === 'done') return { kind: 'done', result: state.result };
    if (state.kind === 'abandoned') return { kind: 'abandoned' };
    return { kind: 'running', retryAfterMs: this.#present(claim.id).leaseEndsAtMs - this.#nowMs() };
  }

  /** Looks for room only when there seems to be none. */
  #hasRoom(): boolean {
    if (this.#fits()) return true;
    void this.purge(Infinity);
    return this.#fits();
  }

  #fits(): boolean {
    const { maxRecords = 10_000, maxStoredCharacters = 64 * 1_024 * 1_024 } = this.options;
    return this.#records.size < maxRecords && this.#characters < maxStoredCharacters;
  }

  #full(): StoreUnavailableError {
    return new StoreUnavailableError(
      'The idempotency store in memory is full, and forgetting an answer would do its work twice. The work did not start; ' +
        'shorten retentionMs, raise maxRecords or maxStoredCharacters, or use a store outside this process.',
      { store: this.kind },
    );
  }

  /** One counter for all records: larger than the last fence of each, without remembering each. */
  #clockFence(): number {
    this.#lastFence = Math.max(this.#lastFence + 1, Math.floor(this.#clock.wallMs() * 1_000));
    return this.#lastFence;
  }

  #nowMs(): number {
    return this.#clock.monotonicMs();
  }
}

const NOTHING: Kept = { state: ABSENT, label: '', leaseEndsAtMs: Infinity, expiresAtMs: Infinity };

function stepOf(ownerId: string, ending: RecordEnding): RecordStep {
  switch (ending.kind) {
    case 'done':
      return { type: 'complete', ownerId, result: ending.result };
    case 'freed':
      return { type: 'free', ownerId, countsAttempt: ending.countsAttempt };
    case 'lapsed':
      return { type: 'lapse', ownerId, countsAttempt: ending.countsAttempt };
    case 'abandoned':
      return { type: 'abandon', ownerId };
  }
}

function charactersOf(state: RecordState): number {
  return state.kind === 'done' ? state.result.body.length : 0;
}
