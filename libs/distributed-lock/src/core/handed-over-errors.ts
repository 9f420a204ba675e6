import { FencedOutError, LockError, type LockErrorDetails } from './errors.js';

/**
 * A token that was handed over is not the newest any more: its holder has been succeeded, and trying again with this token
 * cannot help. The work did not begin.
 */
export class StaleTokenError extends FencedOutError {
  override get statusCode(): number {
    return this.outcome === 'not-started' ? 409 : super.statusCode;
  }
}

/** No token came with a call that has to show one. The work did not begin; send the token of the hold with the call. */
export class TokenRequiredError extends LockError {
  readonly code = 'FENCING_TOKEN_REQUIRED';

  constructor(message: string, details: LockErrorDetails = {}) {
    super(message, details, 'not-started');
  }

  get statusCode(): number {
    return this.outcome === 'not-started' ? 428 : 500;
  }
}

/** What came as a token is none, or none that the store of this key can have given out. The work did not begin. */
export class TokenInvalidError extends LockError {
  readonly code = 'FENCING_TOKEN_INVALID';

  constructor(message: string, details: LockErrorDetails = {}) {
    super(message, details, 'not-started');
  }

  get statusCode(): number {
    return this.outcome === 'not-started' ? 400 : 500;
  }
}
