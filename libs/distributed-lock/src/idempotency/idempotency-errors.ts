import { LockError, type LockErrorDetails, type LossReason } from '../core/index.js';

/** The same call is at work elsewhere and stayed so for all of `waitMs`. This call did nothing; send it again. */
export class IdempotencyInProgressError extends LockError {
  readonly code = 'IDEMPOTENCY_IN_PROGRESS';
  /** How long the present lease runs if it is not renewed; null when the store cannot tell. */
  readonly retryAfterMs: number | null;

  constructor(message: string, details: LockErrorDetails & { readonly retryAfterMs: number | null }) {
    super(message, details, 'not-started');
    this.retryAfterMs = details.retryAfterMs;
  }

  get statusCode(): number {
    return this.outcome === 'not-started' ? 409 : 503;
  }
}

/** The key was used before, with another request. This one was not carried out; give it a key of its own. */
export class IdempotencyKeyReusedError extends LockError {
  readonly code = 'IDEMPOTENCY_KEY_REUSED';

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'not-started');
  }

  get statusCode(): number {
    return this.outcome === 'not-started' ? 422 : 500;
  }
}

/** No key or no fingerprint could be made from the call. The body was not entered. */
export class IdempotencyKeyInvalidError extends LockError {
  readonly code = 'IDEMPOTENCY_KEY_INVALID';

  constructor(message: string, details: LockErrorDetails = {}) {
    super(message, details, 'not-started');
  }

  get statusCode(): number {
    return this.outcome === 'not-started' ? 400 : 500;
  }
}

/**
 * An earlier attempt crashed or was lost, and may not be repeated by itself. This call did nothing. Find out what the earlier
 * one did, then settle the record with `resolve` or `forget`; until then every call ends like this.
 */
export class IdempotencyOutcomeUnknownError extends LockError {
  readonly code = 'IDEMPOTENCY_OUTCOME_UNKNOWN';
  /** Not 4xx: the earlier attempt may have been carried out. */
  readonly statusCode = 503;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'unknown');
  }
}

/**
 * The record's lease ended before the body did, and another attempt has taken over. What the body did until then is unknown.
 * `value` holds its result if it finished all the same, `cause` its error.
 */
export class IdempotencyLeaseLostError extends LockError {
  readonly code = 'IDEMPOTENCY_LEASE_LOST';
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

/** The call was carried out earlier, and its result could not be kept. Read the result where it is; do not repeat the call. */
export class IdempotencyResultOmittedError extends LockError {
  readonly code = 'IDEMPOTENCY_RESULT_OMITTED';
  readonly statusCode = 500;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'committed');
  }
}

/** The body called itself with its own key, and would have waited for itself. The inner body was not entered. */
export class IdempotencyReentrantError extends LockError {
  readonly code = 'IDEMPOTENCY_REENTRANT';
  readonly statusCode = 500;

  constructor(message: string, details: LockErrorDetails) {
    super(message, details, 'not-started');
  }
}
