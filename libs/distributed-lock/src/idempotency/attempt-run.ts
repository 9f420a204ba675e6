import { commandTimeoutMs, hasCode, withinTime } from '../core/index.js';
import { outcomeUnknown } from './claiming.js';
import { runInAttempt, type Attempt } from './attempt.js';
import type { CrashVerdict, ResolvedOptions } from './idempotency-options.js';
import type { RecordEnding, StoredResult } from './idempotency-store.js';
import type { CallContext, OwnedRecord } from './owned-record.js';
import { sameRequest } from './record-state.js';
import { keepResult, type ResultRules } from './stored-result.js';

export type IdempotentWork<T> = (attempt: Attempt) => Promise<T> | T;

/** Gives a stored answer: returns its value, or throws its error. */
export type Replay<T> = (result: StoredResult) => Promise<T>;

/** After these, a newer owner may be at work on the same thing: what the body did is unknown. */
const UNKNOWN_OUTCOME = ['LEASE_LOST', 'LEASE_UNCERTAIN', 'FENCED_OUT', 'IDEMPOTENCY_LEASE_LOST'] as const;

/** One attempt at an owned record, from the claim to the way in which it is left. */
export class AttemptRun<T> {
  #begun = false;
  #over = false;
  readonly #startedAtMs: number;

  constructor(
    private readonly context: CallContext,
    private readonly record: OwnedRecord,
    private readonly options: ResolvedOptions<T>,
    private readonly results: ResultRules,
    private readonly replay: Replay<T>,
  ) {
    this.#startedAtMs = context.clock.monotonicMs();
  }

  async run(work: IdempotentWork<T>): Promise<T> {
    try {
      const verdict = await this.#inside(() => this.#verdict());
      if (verdict === 'reject') return await this.#abandon();
      if (verdict !== 'rerun') return await this.#complete(verdict.completed);
      return await this.#attempt(work);
    } finally {
      this.#over = true;
      this.record.leave();
    }
  }

  #inside<R>(work: () => Promise<R>): Promise<R> {
    return runInAttempt(this.record.id, this.record, () => this.#over, work);
  }

  /** A hook that fails has found out nothing: the next caller asks again. */
  async #verdict(): Promise<CrashVerdict<T>> {
    const { onCrash } = this.options;
    if (!this.record.takenOver || typeof onCrash !== 'function') return 'rerun';
    try {
      return await onCrash(this.record);
    } catch (error) {
      await this.#leaveFailed({ kind: 'lapsed', countsAttempt: false }, error);
      throw error;
    }
  }

  async #abandon(): Promise<never> {
    await this.record.settle({ kind: 'abandoned', keepMs: this.options.unknownRetentionMs });
    throw outcomeUnknown(this.context);
  }

  async #attempt(work: IdempotentWork<T>): Promise<T> {
    const body = async (): Promise<T> => {
      this.#begun = true;
      return work(this.record);
    };
    const { around } = this.options;
    let value: T;
    try {
      value = await this.#inside(() => (around ? around(body) : body()));
    } catch (error) {
      return this.#fail(error);
    }
    if (this.#begun) return this.#complete(value);
    await this.record.settle(this.#freed(false)); // skipped: somebody else may still have to do it
    return value;
  }

  async #complete(value: T): Promise<T> {
    const kept = await keepResult(this.record.id, 'value', value, this.results);
    if (kept.result.outcome === 'omitted') {
      this.context.tell({ type: 'result-omitted', cause: kept.omittedBecause });
    }
    const answer = await this.record.settle(this.#done(kept.result));
    if (answer === 'refused') return this.#adopt({ value });
    // Unanswered: the effect is there, and an error would say that it is not.
    const ranForMs = this.context.clock.monotonicMs() - this.#startedAtMs;
    if (answer === 'settled')
      this.context.tell({ type: 'completed', attempt: this.record.attempt, ranForMs });
    return value;
  }

  async #fail(error: unknown): Promise<T> {
    const ending = await this.#endingAfter(error);
    const answer = await this.#leaveFailed(ending, error);
    if (answer === 'refused' && this.#begun) return this.#adopt({ cause: error });
    throw error;
  }

  async #leaveFailed(ending: RecordEnding, cause: unknown): Promise<string> {
    const { attempt } = this.record;
    const answer = await this.record.settle(ending);
    if (ending.kind !== 'abandoned')
      this.context.tell({ type: 'failed', attempt, ending: ending.kind, cause });
    return answer;
  }

  async #endingAfter(error: unknown): Promise<RecordEnding> {
    if (!this.#begun) return this.#freed(false);
    if (hasCode(error, ...UNKNOWN_OUTCOME)) return { kind: 'lapsed', countsAttempt: true };
    const description = this.options.finalErrors?.describe(error);
    if (description === undefined) return this.#freed(true);
    const { result } = await keepResult(this.record.id, 'error', description, this.results);
    return result.outcome === 'omitted' ? this.#freed(true) : this.#done(result);
  }

  #done(result: StoredResult): RecordEnding {
    return { kind: 'done', result, keepMs: this.options.retentionMs };
  }

  #freed(countsAttempt: boolean): RecordEnding {
    return { kind: 'freed', countsAttempt, keepMs: this.options.retentionMs };
  }

  /** Somebody took over. If they are done, theirs is the answer: all callers of one key get the same one. */
  async #adopt(mine: { readonly value?: unknown; readonly cause?: unknown }): Promise<T> {
    const { store, clock, leaseMs, identity } = this.context;
    const timeoutMs = commandTimeoutMs(leaseMs);
    const read = withinTime(clock, timeoutMs, () => store.read(identity.id, timeoutMs));
    const record = await read.catch(() => null); // then the answer is not known here
    if (!record?.result || !sameRequest(record.fingerprint, this.options.fingerprint))
      throw this.record.lossOf(mine);
    return this.replay(record.result);
  }
}
