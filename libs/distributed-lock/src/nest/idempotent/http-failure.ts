import { STATUS_CODES } from 'node:http';

import {
  ConflictException,
  GoneException,
  HttpException,
  NotFoundException,
  UnprocessableEntityException,
} from '@nestjs/common';

import { toTypedJson, type ResultClasses } from '../../idempotency/index.js';
import { LockHttpException } from '../lock-problem.js';

/** What is kept of an exception that is an answer. */
export interface HttpFailure {
  readonly status: number;
  readonly response: string | object;
  readonly message: string;
  readonly headers: Readonly<Record<string, unknown>>;
  /** True for Nest's own exception of this status, or one that extends it: filters look at the class. */
  readonly isStandard: boolean;
  /** The exception itself, where its class is registered. */
  readonly instance: unknown;
}

/** Business decisions, which a repeated request must not decide again. Anything else may go well the next time. */
const FINAL_STATUS: ReadonlySet<number> = new Set([402, 404, 409, 410, 422]);

const STANDARD: ReadonlyMap<number, new (response: object) => HttpException> = new Map([
  [404, NotFoundException],
  [409, ConflictException],
  [410, GoneException],
  [422, UnprocessableEntityException],
]);

/** Undefined for what is no answer: a lock that was busy for the handler may be free the next time, whatever the status. */
export function failureOf(
  error: unknown,
  headers: HttpFailure['headers'],
  classes: ResultClasses,
): HttpFailure | undefined {
  if (!(error instanceof HttpException) || error instanceof LockHttpException) return undefined;
  const { message } = error;
  const status = error.getStatus();
  if (!FINAL_STATUS.has(status)) return undefined;
  const response = bodyOf(error);
  const type = STANDARD.get(status);
  const isStandard = type !== undefined && error instanceof type && isBody(response);
  return { status, response, message, headers, isStandard, instance: instanceOf(error, classes) };
}

export function exceptionFrom({ status, response, message, isStandard, instance }: HttpFailure): unknown {
  if (instance !== undefined) return instance;
  const type = isStandard ? STANDARD.get(status) : undefined;
  const exception = type ? new type(response as object) : new HttpException(response, status);
  return Object.assign(exception, { message });
}

/** For an error in the place of a body, Nest sends what it says of the status, since an error may hold secrets. */
function bodyOf(exception: HttpException): string | object {
  const response = exception.getResponse();
  if (!(response instanceof Error)) return response;
  const statusCode = exception.getStatus();
  return { statusCode, message: STATUS_CODES[statusCode] };
}

/** What Nest's exceptions take as it is; they wrap anything else. */
function isBody(response: unknown): boolean {
  return typeof response === 'object' && !Array.isArray(response);
}

/** Undefined also where the instance holds what cannot be kept, such as a cause: then status and body are all there is. */
function instanceOf(error: HttpException, classes: ResultClasses): unknown {
  if (!Object.values(classes).some(({ type }) => type === error.constructor)) return undefined;
  try {
    toTypedJson(error, { classes });
    return error;
  } catch {
    return undefined;
  }
}
