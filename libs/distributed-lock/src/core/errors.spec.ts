import * as core from './index.js';
import {
  FencedOutError,
  hasCode,
  isLockError,
  LeaseLostError,
  LeaseUncertainError,
  LockConfigInvalidError,
  LockError,
  LockInsideTransactionError,
  LockKeyInvalidError,
  LockNotHeldError,
  LockTimeoutError,
  OutsideTransactionError,
  SelfDeadlockError,
  ShuttingDownError,
  StaleTokenError,
  StoreUnavailableError,
  TokenInvalidError,
  TokenRequiredError,
  UnfencedWriteError,
  type LockErrorCode,
  type LockErrorDetails,
  type Outcome,
} from './index.js';

type Make = (details: LockErrorDetails) => LockError;

/** Code, status and outcome are a contract: a row that changes breaks somebody's client. */
const CONTRACT: [LockErrorCode, number, Outcome, Make][] = [
  ['LOCK_TIMEOUT', 423, 'not-started', (d) => new LockTimeoutError('m', { ...d, retryAfterMs: 5 })],
  ['LEASE_LOST', 503, 'unknown', (d) => new LeaseLostError('m', { ...d, reason: 'expired' })],
  ['LEASE_UNCERTAIN', 503, 'unknown', (d) => new LeaseUncertainError('m', d)],
  ['FENCED_OUT', 503, 'unknown', (d) => new FencedOutError('m', d)],
  ['UNFENCED_WRITE', 500, 'unknown', (d) => new UnfencedWriteError('m', d)],
  ['OUTSIDE_TRANSACTION', 500, 'unknown', (d) => new OutsideTransactionError('m', d)],
  ['LOCK_INSIDE_TRANSACTION', 500, 'not-started', (d) => new LockInsideTransactionError('m', d)],
  ['LOCK_NOT_HELD', 500, 'unknown', (d) => new LockNotHeldError('m', d)],
  ['STORE_UNAVAILABLE', 503, 'not-started', (d) => new StoreUnavailableError('m', d)],
  ['LOCK_KEY_INVALID', 400, 'not-started', (d) => new LockKeyInvalidError('m', d)],
  ['LOCK_CONFIG_INVALID', 500, 'not-started', (d) => new LockConfigInvalidError('m', d)],
  ['SELF_DEADLOCK', 500, 'not-started', (d) => new SelfDeadlockError('m', d)],
  ['SHUTTING_DOWN', 503, 'not-started', (d) => new ShuttingDownError('m', d)],
  ['FENCING_TOKEN_REQUIRED', 428, 'not-started', (d) => new TokenRequiredError('m', d)],
  ['FENCING_TOKEN_INVALID', 400, 'not-started', (d) => new TokenInvalidError('m', d)],
];
const ROWS = CONTRACT.map(([code, status, outcome, make]) => ({ code, status, outcome, make }));
const OUTCOMES: Outcome[] = ['not-started', 'committed', 'unknown'];

describe('an error of this library', () => {
  it.each(ROWS)('$code is $status and "$outcome" unless more is known', ({ code, status, outcome, make }) => {
    const cause = new Error('driver');
    const error = make({ key: 'k', store: 's', waitedMs: 1, heldMs: 2, cause });
    expect(error).toMatchObject({
      code,
      statusCode: status,
      outcome,
      key: 'k',
      store: 's',
      waitedMs: 1,
      heldMs: 2,
    });
    expect(error).toBeInstanceOf(Error);
    expect(error).toBeInstanceOf(LockError);
    expect(error.cause).toBe(cause);
    expect(error.extensions).toEqual({ code, outcome });
    expect(error.name).toBe(error.constructor.name);
    expect(error.stack).toContain('errors.spec');
  });

  it.each(ROWS)('$code is a 4xx only while the work is known not to have run', ({ make }) => {
    for (const outcome of OUTCOMES) {
      const { statusCode } = make({ outcome });
      if (outcome !== 'not-started') expect(statusCode).toBeGreaterThanOrEqual(500);
    }
  });

  it('has a code of its own, and every exported class is in the contract', () => {
    const classes = Object.values(core).filter(
      (exported) => typeof exported === 'function' && exported.prototype instanceof LockError,
    );
    expect(new Set(ROWS.map(({ code }) => code)).size).toBe(ROWS.length);
    expect(classes.filter((each) => each !== StaleTokenError)).toHaveLength(ROWS.length);
  });

  it('is FENCED_OUT for a stale token that was handed over, and 409 only while the work is known not to have run', () => {
    for (const outcome of OUTCOMES) {
      const error = new StaleTokenError('m', { outcome });
      expect(error).toBeInstanceOf(FencedOutError);
      expect(error.code).toBe('FENCED_OUT');
      expect(error.statusCode).toBe(outcome === 'not-started' ? 409 : 503);
    }
  });

  it('has no cause where none is known', () => {
    expect('cause' in new ShuttingDownError('m', {})).toBe(false);
  });

  it('is recognised across two copies of the package, by its mark and its code', async () => {
    let copy!: typeof core;
    await jest.isolateModulesAsync(async () => {
      copy = await import('./index.js');
    });
    expect(copy.LockTimeoutError).not.toBe(LockTimeoutError);
    const foreign = new copy.LockTimeoutError('m', { retryAfterMs: null });
    expect(foreign).not.toBeInstanceOf(LockError);
    expect(isLockError(foreign)).toBe(true);
    expect(hasCode(foreign, 'LOCK_TIMEOUT')).toBe(true);
    expect(hasCode(foreign, 'LEASE_LOST', 'FENCED_OUT')).toBe(false);
  });

  it('shares one call chain with another copy of the package', async () => {
    let copy!: typeof core;
    await jest.isolateModulesAsync(async () => {
      copy = await import('./index.js');
    });
    const { memoryStore } = await import('../stores/memory/index.js');
    const locks = new core.LockService({ stores: { default: memoryStore() } });
    await locks.withLock('k', (lease) => expect(copy.currentLease()).toBe(lease));
    await locks.close();
  });

  it.each([undefined, null, 0, '', 'LOCK_TIMEOUT', {}, new Error('x'), { code: 'LOCK_TIMEOUT' }])(
    'is not %p',
    (other) => {
      expect(isLockError(other)).toBe(false);
      expect(hasCode(other, 'LOCK_TIMEOUT')).toBe(false);
    },
  );
});
