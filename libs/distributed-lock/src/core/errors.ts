import type { LossReason } from './lease-state.js';

/** Stable identifiers: safe to switch on, log and alert on. Never renamed, never reused. */
export type LockErrorCode =
  | 'LOCK_TIMEOUT'
  | 'LEASE_LOST'
  | 'LEASE_UNCERTAIN'
  | 'FENCED_OUT'
  | 'FENCING_TOKEN_REQUIRED'
  | 'FENCING_TOKEN_INVALID'
  | 'UNFENCED_WRITE'
  | 'OUTSIDE_TRANSACTION'
  | 'LOCK_INSIDE_TRANSACTION'
  | 'LOCK_NOT_HELD'
  | 'STORE_UNAVAILABLE'
  | 'LOCK_KEY_INVALID'
  | 'LOCK_CONFIG_INVALID'
  | 'SELF_DEADLOCK'
  | 'SHUTTING_DOWN'
  | 'IDEMPOTENCY_IN_PROGRESS'
  | 'IDEMPOTENCY_KEY_REUSED'
  | 'IDEMPOTENCY_KEY_INVALID'
  | 'IDEMPOTENCY_OUTCOME_UNKNOWN'
  | 'IDEMPOTENCY_LEASE_LOST'
  | 'IDEMPOTENCY_RESULT_OMITTED'
  | 'IDEMPOTENCY_REENTRANT';

/**
 * What is known about the work: it did not begin, its writes are in the database, or nobody can tell from here.
 *
 * It is about the outermost work under a lock. An error of nested work says `unknown` once it has left the body around it:
 * that one had begun.
 */
export type Outcome = 'not-started' | 'committed' | 'unknown';

export interface LockErrorDetails {
  /** The user's key, without namespace and scope. */
  readonly key?: string;
  /** Name of the store as configured, e.g. `default`. */
  readonly store?: string;
  readonly waitedMs?: number;
  readonly heldMs?: number;
  readonly outcome?: Outcome;
  readonly cause?: unknown;
}

/** Also the mark by which another copy of this package recognises the error. */
const BRAND = Symbol.for('nestjs-distributed-lock/error');

/**
 * Base of every error of this library. Branch on `code`, not on the message or the class: two copies of the package
 * have two classes and one code.
 */
export abstract class LockError extends Error {
  abstract readonly code: LockErrorCode;
  /** HTTP status. 4xx only where the work is known not to have run: payment clients read it as "not executed". */
  abstract readonly statusCode: number;
  readonly [BRAND] = true;
  readonly key?: string;
  readonly store?: string;
  readonly waitedMs?: number;
  readonly heldMs?: number;
  readonly outcome: Outcome;

  constructor(message: string, details: LockErrorDetails, outcome: Outcome) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.key = details.key;
    this.store = details.store;
    this.waitedMs = details.waitedMs;
    this.heldMs = details.heldMs;
    this.outcome = details.outcome ?? outcome;
  }

  /** What GraphQL servers put beside the message. */
  get extensions(): { readonly code: LockErrorCode; readonly outcome: Outcome } {
    return { code: this.code, outcome: this.outcome };
  }
}

/** True for errors of this and of any other copy of the package. */
export function isLockError(error: unknown): error is LockError {
  return typeof error === 'object' && error !== null && BRAND in error;
}

export function hasCode<C extends LockErrorCode>(error: unknown, ...codes: readonly C[]): boolean {
  return isLockError(error) && (codes as readonly LockErrorCode[]).includes(error.code);
}

/** Marks an error that leaves a body: whatever it says did not start, that body did. */
export function afterBodyBegan(error: unknown): unknown {
  if (isLockError(error) && error.outcome === 'not-started') setOutcome(error, 'unknown');
  return error;
}

/** For those who know more than the place that raised the error, e.g. that no body was entered. */
export function setOutcome(error: LockError, outcome: Outcome): void {
  Object.assign(error, { outcome });
}

/** The key stayed held for all of `waitMs`. The body was not entered; try again after `retryAfterMs`. */
export class LockTimeoutError extends LockError {
  readonly code = 'LOCK_TIMEOUT';
  readonly retryAfterMs: number | null;

  constructor(message: string, details: LockErrorDetails & { readonly retryAfterMs: number | null }) {
    super(message, details, 'not-started');
    this.retryAfterMs = details.retryAfterMs;
  }

  get statusCode(): number {
    return this.outcome === 'not-started' ? 423 : 503;
  }
}

/**
 * The lease ended before the work did, so another owner may be running. What the body did until then is unknown:
 * read the data again before retrying. `value` holds its result if it finished all the same, `cause` its error.
 */
export class LeaseLostError extends LockError {
  readonly code = 'LEASE_LOST';
  readonly statusCode = 503;
  readonly reason: LossReason;
  readonly value: unknown;

  constructor(
    message: string,
    details: LockErrorDetails & { readonly reason: LossReason; readonly value?: unknown },
  ) {
    super(message, details, 'unknown');
    this.reason = details.reason;
    this.value = details.value;
  }
}

/** The store has not confirmed the lease lately, or the clocks disagree. Nothing was written; wait and ask again. */
export class LeaseUncertainError extends LockError {
  readonly code = 'LEASE_UNCERTAIN';
  readonly statusCode = 503;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'unknown');
  }
}

/** The database refused a write or a fence because a newer owner was here. That statement changed nothing. */
export class FencedOutError extends LockError {
  readonly code = 'FENCED_OUT';

  get statusCode(): number {
    return 503;
  }

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'unknown');
  }
}

/** A write to a fenced entity carried no token, or took a path that cannot be guarded. It was not sent. */
export class UnfencedWriteError extends LockError {
  readonly code = 'UNFENCED_WRITE';
  readonly statusCode = 500;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'unknown');
  }
}

/** A guarded write ran beside the transaction that its hold has open. It was not sent. */
export class OutsideTransactionError extends LockError {
  readonly code = 'OUTSIDE_TRANSACTION';
  readonly statusCode = 500;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'unknown');
  }
}

/** A lock was asked for inside an open transaction, whose snapshot may be older than the lock. The body was not entered. */
export class LockInsideTransactionError extends LockError {
  readonly code = 'LOCK_INSIDE_TRANSACTION';
  readonly statusCode = 500;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'not-started');
  }
}

/** The context holds no such lock: it never did, or the hold has been released. */
export class LockNotHeldError extends LockError {
  readonly code = 'LOCK_NOT_HELD';
  readonly statusCode = 500;

  constructor(message: string, details: LockErrorDetails = {}) {
    super(message, details, 'unknown');
  }
}

/** The store did not answer, or answered with an error. Never a sign that the key is busy. `cause` is the driver's error. */
export class StoreUnavailableError extends LockError {
  readonly code = 'STORE_UNAVAILABLE';
  readonly statusCode = 503;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'not-started');
  }
}

/** A key could not be made from the arguments. The body was not entered. */
export class LockKeyInvalidError extends LockError {
  readonly code = 'LOCK_KEY_INVALID';

  constructor(message: string, details: LockErrorDetails = {}) {
    super(message, details, 'not-started');
  }

  get statusCode(): number {
    return this.outcome === 'not-started' ? 400 : 500;
  }
}

/** An option, a template or the wiring is wrong. The message says what to write instead. */
export class LockConfigInvalidError extends LockError {
  readonly code = 'LOCK_CONFIG_INVALID';
  readonly statusCode = 500;

  constructor(message: string, details: LockErrorDetails = {}) {
    super(message, details, 'not-started');
  }
}

/** The call would have waited for a hold of its own call chain. The inner body was not entered. */
export class SelfDeadlockError extends LockError {
  readonly code = 'SELF_DEADLOCK';
  readonly statusCode = 500;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'not-started');
  }
}

/** This process is stopping and takes no new locks. The body was not entered; another replica will serve the call. */
export class ShuttingDownError extends LockError {
  readonly code = 'SHUTTING_DOWN';
  readonly statusCode = 503;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'not-started');
  }
}
