import {
  FencedOutError,
  IdempotencyInProgressError,
  IdempotencyKeyReusedError,
  IdempotencyLeaseLostError,
  IdempotencyOutcomeUnknownError,
  LeaseLostError,
  LeaseUncertainError,
  LockTimeoutError,
  StoreUnavailableError,
  UnfencedWriteError,
} from 'nestjs-distributed-lock';

import { ChargeRejectedError, GatewayUnreachableError, StaleTokenError } from '../gateway/payout-gateway.js';
import { describeFailure, refuserOf } from './failure.js';

const lost = (more: object = {}) => new LeaseLostError('lost', { key: 'k', reason: 'expired', ...more });

describe('a failed attempt', () => {
  it.each([
    ['a check that stopped the worker', lost(), 'lease-check'],
    ['the gateway, which had seen a newer token', new StaleTokenError('stale'), 'gateway-token'],
    ['the gateway, told as the cause', lost({ cause: new StaleTokenError('stale') }), 'gateway-token'],
    ['the guard in the database', new FencedOutError('out', {}), 'database-guard'],
    ['nobody, when all was done before the lease ended', lost({ value: { id: 'a' } }), null],
    ['nobody, when the work had failed anyway', lost({ cause: new Error('disk full') }), null],
    ['nobody, when the lock was busy', new LockTimeoutError('busy', { retryAfterMs: 1 }), null],
    ['nobody, when the store was away', new StoreUnavailableError('away', {}), null],
    ['nobody, when the answer was lost', new GatewayUnreachableError('gone'), null],
    ['nobody, when something else was thrown', 'text', null],
  ])('was refused by %s', (_, error, refusedBy) => {
    expect(refuserOf(error)).toBe(refusedBy);
  });

  it.each([
    [new StoreUnavailableError('away', {}), false],
    [new LockTimeoutError('busy', { retryAfterMs: null }), false],
    [new LeaseUncertainError('doubt', {}), false],
    [lost(), false],
    [new GatewayUnreachableError('gone'), false],
    [new Error('connection refused'), false],
    [new IdempotencyInProgressError('elsewhere', { retryAfterMs: 1 }), false],
    [new IdempotencyLeaseLostError('taken over', { reason: 'taken-over' }), false],
    [new IdempotencyKeyReusedError('other data', {}), true],
    [new IdempotencyOutcomeUnknownError('ask an operator', {}), true],
    [new UnfencedWriteError('no token', {}), true],
    [new ChargeRejectedError('no such currency'), true],
  ])('by %s is delivered again or given up', (error, permanent) => {
    expect(describeFailure(error).permanent).toBe(permanent);
  });

  it('is told in one line', () => {
    expect(describeFailure(new Error('first\nsecond'))).toMatchObject({ code: 'Error', message: 'first' });
    expect(describeFailure(lost()).code).toBe('LEASE_LOST');
  });
});
