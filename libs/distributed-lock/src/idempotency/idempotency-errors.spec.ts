import {
  hasCode,
  isLockError,
  type LockErrorCode,
  type LockErrorDetails,
  type Outcome,
} from '../core/index.js';
import {
  IdempotencyInProgressError,
  IdempotencyKeyInvalidError,
  IdempotencyKeyReusedError,
  IdempotencyLeaseLostError,
  IdempotencyOutcomeUnknownError,
  IdempotencyReentrantError,
  IdempotencyResultOmittedError,
} from './index.js';

/** Code, status and outcome are a contract: a row that changes breaks somebody's client. */
const CONTRACT: [LockErrorCode, number, Outcome, (details: LockErrorDetails) => unknown][] = [
  [
    'IDEMPOTENCY_IN_PROGRESS',
    409,
    'not-started',
    (d) => new IdempotencyInProgressError('m', { ...d, retryAfterMs: 5 }),
  ],
  ['IDEMPOTENCY_KEY_REUSED', 422, 'not-started', (d) => new IdempotencyKeyReusedError('m', d)],
  ['IDEMPOTENCY_KEY_INVALID', 400, 'not-started', (d) => new IdempotencyKeyInvalidError('m', d)],
  ['IDEMPOTENCY_OUTCOME_UNKNOWN', 503, 'unknown', (d) => new IdempotencyOutcomeUnknownError('m', d)],
  [
    'IDEMPOTENCY_LEASE_LOST',
    503,
    'unknown',
    (d) => new IdempotencyLeaseLostError('m', { ...d, reason: 'expired' }),
  ],
  ['IDEMPOTENCY_RESULT_OMITTED', 500, 'committed', (d) => new IdempotencyResultOmittedError('m', d)],
  ['IDEMPOTENCY_REENTRANT', 500, 'not-started', (d) => new IdempotencyReentrantError('m', d)],
];
const rows = CONTRACT.map(([code, statusCode, outcome, make]) => ({ code, statusCode, outcome, make }));

describe('an error of an idempotent call', () => {
  it.each(rows)('$code is $statusCode and "$outcome"', ({ code, statusCode, outcome, make }) => {
    const error = make({ key: 'k', store: 'redis', cause: new Error('driver') });
    expect(error).toMatchObject({
      code,
      statusCode,
      outcome,
      key: 'k',
      store: 'redis',
      extensions: { code, outcome },
    });
    expect(isLockError(error)).toBe(true);
    expect(hasCode(error, code)).toBe(true);
  });

  it.each(rows)('$code is never 4xx once it has left a body that began', ({ make }) => {
    const { statusCode } = make({ outcome: 'unknown' }) as { statusCode: number };
    expect(statusCode).toBeGreaterThanOrEqual(500);
  });
});
