import {
  commandTimeoutMs,
  isLockError,
  newOwnerId,
  jittered,
  pause,
  StoreUnavailableError,
  withinTime,
} from '../core/index.js';
import {
  IdempotencyInProgressError,
  IdempotencyKeyReusedError,
  IdempotencyOutcomeUnknownError,
} from './idempotency-errors.js';
import type { ResolvedOptions } from './idempotency-options.js';
import type { ClaimAnswer, Claimed, RecordClaim, StoredResult } from './idempotency-store.js';
import { OwnedRecord, type CallContext } from './owned-record.js';

/** Either this call's turn, or somebody's answer. */
export type ClaimOutcome =
  | { readonly kind: 'owned'; readonly record: OwnedRecord }
  | { readonly kind: 'done'; readonly result: StoredResult };

export type ClaimRules = Pick<
  ResolvedOptions<unknown>,
  'fingerprint' | 'maxAttempts' | 'onCrash' | 'waitMs' | 'signal'
>;

export const FIRST_POLL_MS = 25;
export const LONGEST_POLL_MS = 500;
/** What waits in memory is bounded: beyond this, a caller is told at once. */
const MOST_WAITERS = 1_000;

let waiters = 0;

/** Claims a record, or waits until whoever has it is done with it. Ending a wait changes nothing in the store. */
export class Claiming {
  readonly #startedAtMs: number;
  #sentAtMs = 0;
  #ownerId = '';

  constructor(
    private readonly context: CallContext,
    private readonly rules: ClaimRules,
  ) {
    this.#startedAtMs = context.clock.monotonicMs();
  }

  get waitedMs(): number {
    return this.context.clock.monotonicMs() - this.#startedAtMs;
  }

  /**
   * What the store says to a claim; it may be no word of its own. Not async: with AsyncLocalStorage in use every promise
   * costs, and a replay needs no more than this one.
   *
   * @throws {StoreUnavailableError}
   */
  ask(): Promise<ClaimAnswer | undefined> {
    const { store, clock, leaseMs } = this.context;
    this.#ownerId = newOwnerId();
    this.#sentAtMs = clock.monotonicMs();
    const claim = claimBy(this.#ownerId, this.context, this.rules);
    const timeoutMs = commandTimeoutMs(leaseMs);
    const explain = (cause: unknown): Error => this.#unanswered(cause);
    return withinTime(clock, timeoutMs, () => store.claim(claim, timeoutMs), { explain });
  }

  /**
   * Asks again as long as the answer is that somebody is at work.
   *
   * @throws {IdempotencyInProgressError | IdempotencyKeyReusedError | IdempotencyOutcomeUnknownError | StoreUnavailableError}
   */
  async conclude(first: ClaimAnswer | undefined): Promise<ClaimOutcome> {
    const { context, rules } = this;
    for (let said = first; ; said = await this.ask()) {
      const answer = this.#believed(said);
      switch (answer.kind) {
        case 'claimed':
          return { kind: 'owned', record: this.#owned(answer) };
        case 'done':
          return answer;
        case 'running':
          if (await noLongerRunning(context, rules, rules.waitMs - this.waitedMs)) break;
          throw inProgress(context, this.waitedMs, answer.retryAfterMs);
        case 'mismatch':
          throw keyReused(context);
        case 'abandoned':
          throw outcomeUnknown(context);
      }
    }
  }

  #owned(answer: Claimed): OwnedRecord {
    const { attempt, fence, takenOver } = answer;
    this.context.tell({ type: 'claimed', attempt, fence, takenOver });
    return new OwnedRecord(this.context, this.#ownerId, answer, this.#sentAtMs);
  }

  #believed(answer: ClaimAnswer | undefined): ClaimAnswer {
    try {
      return believed(answer);
    } catch (cause) {
      throw this.#unanswered(cause);
    }
  }

  /** What to tell the caller; what the store may have done is taken back. */
  #unanswered(cause: unknown): Error {
    const { context } = this;
    if (isLockError(cause)) return cause;
    context.tell({ type: 'store-unanswered', step: 'claim', cause });
    freeUnanswered(context, this.#ownerId);
    return unavailable(context, cause);
  }
}

export function claimBy(ownerId: string, context: CallContext, rules: ClaimRules): RecordClaim {
  const { identity, leaseMs, keepMs } = context;
  const { fingerprint, maxAttempts, onCrash } = rules;
  const { id, label } = identity;
  const takeOver = onCrash !== 'reject';
  return { id, ownerId, fingerprint, leaseMs, keepMs, takeOver, maxAttempts, label };
}

/** What is not exact counts as no answer. */
export function believed(answer: ClaimAnswer | undefined): ClaimAnswer {
  const kinds = ['claimed', 'running', 'done', 'abandoned', 'mismatch'];
  if (!answer || !kinds.includes(answer.kind))
    throw new TypeError('The store answered the claim with no word of its own.');
  if (answer.kind !== 'claimed') return answer;
  if (Number.isSafeInteger(answer.fence) && Number.isSafeInteger(answer.attempt)) return answer;
  throw new TypeError('The store granted the claim with a fence or an attempt that is no safe integer.');
}

/** The claim may have been carried out: without this, everybody would wait for a call that never began. */
function freeUnanswered({ store, clock, identity, leaseMs, keepMs }: CallContext, ownerId: string): void {
  const timeoutMs = commandTimeoutMs(leaseMs);
  const ending = { kind: 'freed', countsAttempt: false, keepMs } as const;
  withinTime(clock, timeoutMs, () => store.settle(identity.id, ownerId, ending, timeoutMs)).catch(
    () => undefined,
  );
}

/** Looks at the record now and then, without a claim: a claim that loses still writes, on some stores. */
async function noLongerRunning(context: CallContext, rules: ClaimRules, waitMs: number): Promise<boolean> {
  if (waitMs <= 0 || waiters >= MOST_WAITERS) return false;
  waiters += 1;
  try {
    return await pollUntilSettled(context, rules.signal, context.clock.monotonicMs() + waitMs);
  } finally {
    waiters -= 1;
  }
}

async function pollUntilSettled(
  context: CallContext,
  signal: AbortSignal | undefined,
  untilMs: number,
): Promise<boolean> {
  const { clock } = context;
  const signals = signal ? [signal] : [];
  for (let pauseMs = FIRST_POLL_MS; ; pauseMs = Math.min(pauseMs * 1.5, LONGEST_POLL_MS)) {
    const remainingMs = untilMs - clock.monotonicMs();
    if (remainingMs <= 0) return false;
    const end = await pause(clock, { timeoutMs: Math.min(jittered(pauseMs), remainingMs), signals });
    if (end === 'aborted') return false;
    if (!(await stillRunning(context))) return true;
  }
}

async function stillRunning({ store, clock, identity, leaseMs }: CallContext): Promise<boolean> {
  const timeoutMs = commandTimeoutMs(leaseMs);
  try {
    const record = await withinTime(clock, timeoutMs, () => store.read(identity.id, timeoutMs));
    return record?.state === 'running';
  } catch {
    return true; // nobody knows; the next look, or the end of the wait, will tell
  }
}

export function inProgress(
  { identity, store, tell }: CallContext,
  waitedMs: number,
  retryAfterMs: number | null,
): IdempotencyInProgressError {
  tell({ type: 'in-progress', waitedMs, retryAfterMs });
  return new IdempotencyInProgressError(
    `"${identity.key}" is at work elsewhere, and was so for the ${Math.round(waitedMs)} ms that this call waited. ` +
      'This call did nothing; send it again to get the answer.',
    { key: identity.key, store: store.kind, waitedMs, retryAfterMs },
  );
}

export function keyReused({ identity, store, tell }: CallContext): IdempotencyKeyReusedError {
  tell({ type: 'key-reused' });
  return new IdempotencyKeyReusedError(
    `"${identity.key}" was used before with another request. This one was not carried out; give it a key of its own.`,
    { key: identity.key, store: store.kind },
  );
}

export function outcomeUnknown({ identity, store, tell }: CallContext): IdempotencyOutcomeUnknownError {
  tell({ type: 'outcome-unknown' });
  return new IdempotencyOutcomeUnknownError(
    `An earlier attempt at "${identity.key}" did not end, and may not be repeated by itself. This call did nothing. ` +
      'Find out what that attempt did, then settle its record: resolve() with the result, or forget() to run it again.',
    { key: identity.key, store: store.kind },
  );
}

export function unavailable({ identity, store }: CallContext, cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(
    `The idempotency store did not answer, so nobody knows whether "${identity.key}" was done before. ` +
      'The work did not start; try again.',
    { key: identity.key, store: store.kind, cause },
  );
}
