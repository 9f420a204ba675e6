import { createParamDecorator, type ExecutionContext } from '@nestjs/common';

import { requireToken, TokenInvalidError } from '../core/index.js';
import { heldKeyText, type HeldKey } from './lock-context.js';

/** The header with which a token travels: the number and nothing else; which key it is for, the receiver knows itself. */
export const FENCING_TOKEN_HEADER = 'Fencing-Token';

/**
 * The header for a call to a service that fences its own writes: `{ 'Fencing-Token': '42' }`, from the lock that is held
 * here, or the token that was handed over to this work, so that a chain of services hands it on.
 *
 * `key` is needed where there are several. For messages put the number into the payload:
 * `{ ...data, fencingToken: lock.token }`.
 *
 * @throws {LockNotHeldError} there is no token to send
 * @throws {LeaseLostError | LeaseUncertainError} the lock is over or in doubt: the call must not be made
 * @throws {LockConfigInvalidError} there are several and no key was given
 */
export function fencingHeaders(key?: HeldKey): Record<typeof FENCING_TOKEN_HEADER, string> {
  return { [FENCING_TOKEN_HEADER]: String(requireToken(heldKeyText(key)).token) };
}

/** Decimal, as a safe integer prints itself: no sign, no leading zero, no fraction, one value. */
const WRITTEN_TOKEN = /^(?:0|[1-9]\d{0,15})$/;

/**
 * The token that `given` is, as a number or as its digits.
 *
 * @throws {TokenInvalidError} it is something else, such as two of them
 */
export function readToken(given: unknown, label: string): number {
  const token = typeof given === 'string' && WRITTEN_TOKEN.test(given) ? Number(given) : given;
  if (Number.isSafeInteger(token) && (token as number) >= 0) return token as number;
  throw new TokenInvalidError(
    `${label} was sent ${describe(given)} as fencing token, and did not run. A token is one safe integer; HTTP libraries ` +
      'join a header that was sent twice with a comma.',
  );
}

/** What came with a request, as a handler's last argument, which the handler itself never sees. */
export class Arrival {
  constructor(
    /** `http`, `rpc`, … */
    readonly by: string,
    /** Undefined when the request has no such header. */
    readonly header: unknown,
  ) {}
}

/** Has Nest pass an {@link Arrival} at the decorated position. */
export const ArrivalParameter = createParamDecorator((_data: unknown, context: ExecutionContext) => {
  const by = context.getType<string>();
  if (by !== 'http') return new Arrival(by, undefined);
  const request = context.switchToHttp().getRequest<{ readonly headers?: Record<string, unknown> }>();
  return new Arrival(by, request.headers?.[FENCING_TOKEN_HEADER.toLowerCase()]);
});

/** Headers are the sender's, so no more of them than this gets into messages and logs. */
const LONGEST_SHOWN = 40;

function describe(given: unknown): string {
  if (typeof given === 'string') return JSON.stringify(given.slice(0, LONGEST_SHOWN));
  return typeof given === 'number' ? String(given) : `a value of type ${typeof given}`;
}
