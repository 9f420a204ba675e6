import { commandTimeoutMs, withinTime } from '../core/index.js';
import { outcomeUnknown } from './claiming.js';
import { runInAttempt, type Attempt } from './attempt.js';
import { AttemptEndings, crashVerdict } from './attempt-endings.js';
import { commitInDoubt } from './commit-in-doubt.js';
import type { CrashVerdict, ResolvedOptions } from './idempotency-options.js';
import type { RecordEnding, StoredResult } from './idempotency-store.js';
import type { CallContext, OwnedRecord } from './owned-record.js';
import { sameRequest } from './record-state.js';
import type { TransactionalOptions } from './transactional-options.js';
import type { ResultRules } from './stored-result.js';

export type IdempotentWork<T> = (attempt: Attempt) => Promise<T> | T;

/** Gives a stored answer: returns its value, at once or later, or throws its error. */
export type Replay<T> = (result: StoredResult) => T | Promise<T>;

/** One attempt at an owned record, from the claim to the way in which it is left. */
export class AttemptRun<T> {
  #begun = false;
  #over = false;
  /** The transaction has all it needs to commit: from here on it may have. */
  #handedIn = false;
  #committed: { readonly value: T } | undefined;
  /** The transaction of the body that was begun last, and its end. */
  #transaction: Promise<T> | undefined;
  readonly #startedAtMs: number;
  readonly #endings: AttemptEndings<T>;

  constructor(
    private readonly context: CallContext,
    private readonly record: OwnedRecord,
    private readonly options: ResolvedOptions<T>,
    results: ResultRules,
    private readonly replay: Replay<T>,
  ) {
    this.#startedAtMs = context.clock.monotonicMs();
    this.#endings = new AttemptEndings(context, options, results);
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
    try {
      return await crashVerdict(this.options, this.record);
    } catch (error) {
      await this.#leaveFailed({ kind: 'lapsed', countsAttempt: false }, error);
      throw error;
    }
  }

  async #abandon(): Promise<never> {
    await this.record.settle(this.#endings.abandoned);
    throw outcomeUnknown(this.context);
  }

  async #attempt(work: IdempotentWork<T>): Promise<T> {
    const { around } = this.options;
    const body = (): Promise<T> => this.#body(work);
    let value: T;
    try {
      value = await this.#inside(() => (around ? around(body) : body()));
      await this.#transaction; // what is around it may have dropped its error
    } catch (error) {
      if (!this.#committed) return this.#fail(error);
    }
    if (this.#committed) return this.#tellCompleted(this.#committed.value);
    if (this.#begun) return this.#complete(value!);
    await this.record.settle(this.#endings.freed(false)); // skipped: somebody else may still have to do it
    return value!;
  }

  async #body(work: IdempotentWork<T>): Promise<T> {
    const { transactional } = this.options;
    this.#begun = true;
    if (!transactional) return work(this.record);
    if (this.#committed) return this.#committed.value;
    return (this.#transaction = this.#inTransaction(transactional, work));
  }

  /** Here the record is completed by the transaction of the body, or by nobody. */
  async #inTransaction({ isolation }: TransactionalOptions, work: IdempotentWork<T>): Promise<T> {
    const { transactions } = this.context.store;
    if (!transactions) throw new TypeError('the store has no transactions'); // checked with the options
    if (!transactions.renewable(isolation)) this.record.stopRenewing();
    let value!: T;
    const answer = await transactions.settleWithin(this.record, isolation, async () => {
      value = await work(this.record);
      const ending = await this.#endings.done(value);
      this.#handedIn = true;
      return ending;
    });
    if (answer === 'refused') throw this.record.lossOf({ value });
    this.#committed = { value };
    this.record.leave();
    return value;
  }

  async #complete(value: T): Promise<T> {
    const answer = await this.record.settle(await this.#endings.done(value));
    if (answer === 'refused') return this.#adopt(() => this.record.lossOf({ value }));
    // Unanswered: the effect is there, and an error would say that it is not.
    return answer === 'settled' ? this.#tellCompleted(value) : value;
  }

  #tellCompleted(value: T): T {
    const ranForMs = this.context.clock.monotonicMs() - this.#startedAtMs;
    this.context.tell({ type: 'completed', attempt: this.record.attempt, ranForMs });
    return value;
  }

  async #fail(error: unknown): Promise<T> {
    const ending = await this.#endings.after(error, this.#begun);
    const answer = await this.#leaveFailed(ending, error);
    // Also after a COMMIT without an answer: then the record is done, and its owner's own answer is in it.
    if (answer === 'refused' && this.#begun) return this.#adopt(() => this.record.lossOf({ cause: error }));
    if (answer === 'unanswered' && this.#handedIn)
      return this.#adopt(() => commitInDoubt(this.context, error));
    if (ending.kind === 'done' && this.#handedIn) return this.#unlessCommitted(error);
    throw error;
  }

  async #leaveFailed(ending: RecordEnding, cause: unknown): Promise<string> {
    const { attempt } = this.record;
    const answer = await this.record.settle(ending);
    if (ending.kind !== 'abandoned')
      this.context.tell({ type: 'failed', attempt, ending: ending.kind, cause });
    return answer;
  }

  /** Done by this owner may mean with this error, or by a COMMIT without an answer. */
  async #unlessCommitted(error: unknown): Promise<T> {
    const result = await this.#recordedResult();
    if (!result) throw commitInDoubt(this.context, error);
    if (result.outcome === 'error') throw error;
    return this.replay(result);
  }

  /** If the record is done, what it says is the answer, whoever did it: all callers of one key get the same one. */
  async #adopt(otherwise: () => Error): Promise<T> {
    const result = await this.#recordedResult();
    if (!result) throw otherwise();
    return this.replay(result);
  }

  async #recordedResult(): Promise<StoredResult | null> {
    const { store, clock, leaseMs, identity } = this.context;
    const timeoutMs = commandTimeoutMs(leaseMs);
    const read = withinTime(clock, timeoutMs, () => store.read(identity.id, timeoutMs));
    const record = await read.catch(() => null); // then the answer is not known here
    return record && sameRequest(record.fingerprint, this.options.fingerprint) ? record.result : null;
  }
}
