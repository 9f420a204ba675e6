import { FencedOutError, LockError, type LockErrorDetails } from './errors.js';

/**
 * A token that was handed over is not the newest any more: its holder has been succeeded. With outcome `not-started` the
 * work did not begin; with `unknown` a write of it was refused, and what it had done before stands.
 *
 * The one error that is 4xx also then: trying again with this token cannot help, and that is what its sender must know.
 */
export class StaleTokenError extends FencedOutError {
  override readonly statusCode = 409;
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
