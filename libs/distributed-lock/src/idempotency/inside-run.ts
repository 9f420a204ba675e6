import { commandTimeoutMs, isLockError, jittered, newOwnerId, pause, withinTime } from '../core/index.js';
import { AttemptEndings, crashVerdict } from './attempt-endings.js';
import { runInAttempt } from './attempt.js';
import type { IdempotentWork, Replay } from './attempt-run.js';
import {
  believed,
  claimBy,
  FIRST_POLL_MS,
  inProgress,
  keyReused,
  LONGEST_POLL_MS,
  outcomeUnknown,
  unavailable,
} from './claiming.js';
import { commitInDoubt } from './commit-in-doubt.js';
import type { ResolvedOptions } from './idempotency-options.js';
import type {
  ClaimAnswer,
  Claimed,
  RecordEnding,
  RecordTransactions,
  StoredRecord,
} from './idempotency-store.js';
import { InsideAttempt } from './inside-attempt.js';
import type { CallContext } from './owned-record.js';
import { sameRequest } from './record-state.js';
import type { ResultRules } from './stored-result.js';

/** One call whose claim is a part of the transaction that does the work. */
export class InsideRun<T> {
  #claimed: Claimed | undefined;
  #begun = false;
  #handedIn = false;
  #over = false;
  #value: T | undefined;
  #rejected = false;
  #answered: { readonly value: T } | undefined;
  #last: Promise<T> | undefined;
  readonly #startedAtMs: number;
  readonly #endings: AttemptEndings<T>;

  constructor(
    private readonly context: CallContext,
    private readonly transactions: RecordTransactions,
    private readonly options: ResolvedOptions<T>,
    results: ResultRules,
    private readonly replay: Replay<T>,
  ) {
    this.#startedAtMs = context.clock.monotonicMs();
    this.#endings = new AttemptEndings(context, options, results);
  }

  /** Looks at the record first: a repetition then needs neither the lock nor a transaction. */
  async run(work: IdempotentWork<T>): Promise<T> {
    const earlier = await this.#look();
    if (earlier && !sameRequest(earlier.fingerprint, this.options.fingerprint) && isKept(earlier))
      throw keyReused(this.context);
    if (earlier?.result) return this.#replayed(earlier.result);
    const { around } = this.options;
    const body = (): Promise<T> => (this.#last = this.#answer(work));
    try {
      const value = await (around ? around(body) : body());
      return this.#last ? await this.#last : value; // what is around it may have dropped its error
    } catch (error) {
      if (!this.#answered) throw error;
      return this.#answered.value;
    } finally {
      this.#over = true;
    }
  }

  async #look(): Promise<StoredRecord | null> {
    const { store, clock, identity, leaseMs } = this.context;
    const timeoutMs = commandTimeoutMs(leaseMs);
    try {
      return await withinTime(clock, timeoutMs, () => store.read(identity.id, timeoutMs));
    } catch (cause) {
      this.context.tell({ type: 'store-unanswered', step: 'claim', cause });
      throw unavailable(this.context, cause);
    }
  }

  async #answer(work: IdempotentWork<T>): Promise<T> {
    const value = await this.#once(work);
    this.#answered = { value };
    return value;
  }

  async #once(work: IdempotentWork<T>): Promise<T> {
    for (let pauseMs = FIRST_POLL_MS; ; pauseMs = Math.min(pauseMs * 1.5, LONGEST_POLL_MS)) {
      const answer = await this.#transact(work);
      switch (answer.kind) {
        case 'claimed':
          return this.#completed();
        case 'done':
          return this.#replayed(answer.result);
        case 'mismatch':
          throw keyReused(this.context);
        case 'abandoned':
          throw outcomeUnknown(this.context);
        case 'running':
          await this.#wait(pauseMs, answer.retryAfterMs);
      }
    }
  }

  /** The record is not there to be looked at before the other transaction has ended. */
  async #wait(pauseMs: number, retryAfterMs: number | null): Promise<void> {
    const { waitMs, signal } = this.options;
    const { clock } = this.context;
    const remainingMs = waitMs - this.#passedMs;
    if (remainingMs <= 0 || signal?.aborted)
      throw inProgress(this.context, Math.min(waitMs, this.#passedMs), retryAfterMs);
    await pause(clock, {
      timeoutMs: Math.min(jittered(pauseMs), remainingMs),
      signals: signal ? [signal] : [],
    });
  }

  async #transact(work: IdempotentWork<T>): Promise<ClaimAnswer> {
    const claim = claimBy(newOwnerId(), this.context, this.options);
    const { isolation } = this.options.transactional ?? {};
    this.#claimed = undefined;
    this.#begun = false;
    try {
      const attempt = (claimed: Claimed): Promise<RecordEnding> => this.#attempt(claimed, work);
      return believed(await this.transactions.claimWithin(claim, isolation, attempt));
    } catch (error) {
      if (!this.#claimed) throw isLockError(error) ? error : unavailable(this.context, error);
      return this.#rolledBack(claim.ownerId, error);
    }
  }

  #attempt(claimed: Claimed, work: IdempotentWork<T>): Promise<RecordEnding> {
    const { identity, tell } = this.context;
    const { attempt, fence, takenOver } = (this.#claimed = claimed);
    tell({ type: 'claimed', attempt, fence, takenOver });
    const inside = new InsideAttempt(identity, claimed);
    return runInAttempt(
      identity.id,
      inside,
      () => this.#over,
      async () => {
        const verdict = await crashVerdict(this.options, inside);
        if (verdict === 'reject') {
          this.#rejected = true;
          return this.#endings.abandoned;
        }
        this.#begun = verdict === 'rerun';
        this.#value = verdict === 'rerun' ? await work(inside) : verdict.completed;
        const ending = await this.#endings.done(this.#value);
        this.#handedIn = true;
        return ending;
      },
    );
  }

  #completed(): T {
    if (this.#rejected) throw outcomeUnknown(this.context);
    const attempt = this.#claimed?.attempt ?? 1;
    this.context.tell({ type: 'completed', attempt, ranForMs: this.#passedMs });
    return this.#value as T;
  }

  /**
   * The claim went with the transaction. It is made anew, to write down how the attempt ended; where the COMMIT got no answer
   * and was carried out, the record says so now.
   */
  async #rolledBack(ownerId: string, error: unknown): Promise<ClaimAnswer> {
    const { store, clock, leaseMs, identity, tell } = this.context;
    const timeoutMs = commandTimeoutMs(leaseMs);
    const ending = await this.#ending(error);
    try {
      const claim = claimBy(ownerId, this.context, this.options);
      const answer = await withinTime(clock, timeoutMs, () => store.claim(claim, timeoutMs));
      if (answer.kind === 'done') return answer;
      if (answer.kind === 'claimed')
        await withinTime(clock, timeoutMs, () => store.settle(identity.id, ownerId, ending, timeoutMs));
    } catch (cause) {
      tell({ type: 'store-unanswered', step: 'settle', cause });
      if (this.#handedIn) throw commitInDoubt(this.context, error);
    }
    if (ending.kind !== 'abandoned')
      tell({ type: 'failed', attempt: this.#claimed?.attempt ?? 1, ending: ending.kind, cause: error });
    throw error;
  }

  /** Without a body there was only a hook about an attempt that crashed: the next caller asks again. */
  async #ending(error: unknown): Promise<RecordEnding> {
    return this.#begun ? this.#endings.after(error, true) : { kind: 'lapsed', countsAttempt: false };
  }

  #replayed(result: Parameters<Replay<T>>[0]): T | Promise<T> {
    this.context.tell({ type: 'replayed', waitedMs: this.#passedMs });
    return this.replay(result);
  }

  get #passedMs(): number {
    return this.context.clock.monotonicMs() - this.#startedAtMs;
  }
}

/** A record of failed attempts alone takes any request. */
function isKept({ state }: StoredRecord): boolean {
  return state !== 'absent';
}
