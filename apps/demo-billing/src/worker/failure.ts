import { isLockError, type LeaseLostError, type LockErrorCode } from 'nestjs-distributed-lock';

import { ChargeRejectedError, StaleTokenError } from '../gateway/payout-gateway.js';
import type { Failure, Refuser } from './messages.js';

/** Mistakes in the program, or nothing without an operator: they are there at the next try as well. */
const PERMANENT: ReadonlySet<LockErrorCode> = new Set<LockErrorCode>([
  'IDEMPOTENCY_KEY_INVALID',
  'IDEMPOTENCY_KEY_REUSED',
  'IDEMPOTENCY_OUTCOME_UNKNOWN',
  'IDEMPOTENCY_REENTRANT',
  'IDEMPOTENCY_RESULT_OMITTED',
  'LOCK_CONFIG_INVALID',
  'LOCK_KEY_INVALID',
  'LOCK_NOT_HELD',
  'LOCK_INSIDE_TRANSACTION',
  'OUTSIDE_TRANSACTION',
  'SELF_DEADLOCK',
  'UNFENCED_WRITE',
]);

/** What the coordinator has to know of an error: what it was, and whether to try again later or never. */
export function describeFailure(error: unknown): Failure {
  const { name, message } = error instanceof Error ? error : { name: 'Error', message: String(error) };
  return {
    code: isLockError(error) ? error.code : name,
    message: message.split('\n')[0] as string,
    permanent: isLockError(error) ? PERMANENT.has(error.code) : error instanceof ChargeRejectedError,
  };
}

/** Who stopped a former owner; null when the attempt failed over something else. */
export function refuserOf(error: unknown): Refuser | null {
  if (error instanceof StaleTokenError) return 'gateway-token';
  if (!isLockError(error)) return null;
  if (error.code === 'FENCED_OUT') return 'database-guard';
  return error.code === 'LEASE_LOST' ? refuserOfLost(error as LeaseLostError) : null;
}

/** A lost lease is told in three ways: instead of the body's value, instead of its error, or by the check that stopped it. */
function refuserOfLost({ value, cause }: LeaseLostError): Refuser | null {
  if (cause !== undefined) return refuserOf(cause);
  return value === undefined ? 'lease-check' : null;
}
