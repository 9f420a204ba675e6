import { STATUS_CODES } from 'node:http';

import { HttpException } from '@nestjs/common';

import { isLockError, type LockError, type LockErrorCode, type Outcome } from '../core/index.js';

/** The body of an HTTP answer, as RFC 9457 has it. */
export interface LockProblem {
  readonly type: 'about:blank';
  /** The phrase of the status. */
  readonly title: string;
  readonly status: number;
  /** For the reader; it names no key and no store. */
  readonly detail: string;
  readonly code: LockErrorCode;
  readonly outcome: Outcome;
}

/** An error of a lock as an HTTP answer. A filter that sends it should also set `headers`. */
export class LockHttpException extends HttpException {
  constructor(
    readonly problem: LockProblem,
    readonly headers: Readonly<Record<string, string>>,
    cause: LockError,
  ) {
    super({ ...problem }, problem.status, { cause });
  }
}

/**
 * For catch-all filters: `const exception = toHttpException(error) ?? error`.
 *
 * Busy is 423, a store that does not answer 503, both with `Retry-After` when nothing was done. Whenever it is unknown
 * what the work did, the status is 503 and never 4xx, which payment clients read as "not executed".
 *
 * @returns undefined for anything but an error of a lock
 */
export function toHttpException(error: unknown): LockHttpException | undefined {
  if (!isLockError(error)) return undefined;
  const { code, outcome } = error;
  const status = outcome === 'unknown' ? 503 : error.statusCode;
  const title = STATUS_CODES[status] ?? 'Error';
  const problem = {
    type: 'about:blank',
    title,
    status,
    detail: DETAILS[code]?.[outcome] ?? detailOf(status, outcome),
    code,
    outcome,
  } as const;
  const headers = { 'Content-Type': 'application/problem+json; charset=utf-8', ...retryAfter(error, status) };
  return new LockHttpException(problem, headers, error);
}

/** For those who send fencing tokens along. */
const DETAILS: { readonly [C in LockErrorCode]?: { readonly [O in Outcome]?: string } } = {
  FENCED_OUT: {
    'not-started': 'A newer owner has taken over. Nothing was done; do not send this again.',
    unknown:
      'A newer owner has taken over, and a write of this request was refused. What it did before stands; do not send it again.',
  },
  IDEMPOTENCY_IN_PROGRESS: {
    'not-started':
      'A request with this key is being carried out. This one did nothing; send it again later to get the answer.',
  },
  IDEMPOTENCY_KEY_REUSED: {
    'not-started':
      'The key was used before, with other data. Nothing was done; take a new key for a new operation.',
  },
  IDEMPOTENCY_KEY_INVALID: {
    'not-started':
      'This request needs one Idempotency-Key header: 1 to 255 printable ASCII characters, without quotes, commas and ' +
      'backslashes inside. Nothing was done.',
  },
  IDEMPOTENCY_RESULT_OMITTED: {
    committed:
      'This was done by an earlier request with the same key, and its answer was not kept. Nothing was repeated.',
  },
  FENCING_TOKEN_REQUIRED: { 'not-started': 'This request needs a Fencing-Token header. Nothing was done.' },
  FENCING_TOKEN_INVALID: {
    'not-started':
      'The Fencing-Token of this request has to be one number, as a lock has given it out. Nothing was done.',
  },
};

/** The error's own message is for the log: it names keys, and methods of the application. */
function detailOf(status: number, outcome: Outcome): string {
  if (outcome === 'unknown') return 'It is unknown what this request has done. Look before sending it again.';
  if (outcome === 'committed') return 'This request has done its work, and could not finish in order.';
  if (status === 423)
    return 'Another request is at work on the same thing. Nothing was done; send this again later.';
  if (status === 400) return 'This request does not say what it is about. Nothing was done.';
  if (status === 503)
    return 'The service cannot do this at the moment. Nothing was done; send this again later.';
  return 'This request was not carried out.';
}

const ASK_AGAIN_MS = 2_000;

/** In whole seconds, and at least one: a client that comes back at once would only wait again. */
function retryAfter(error: LockError, status: number): Record<string, string> {
  const askAgainInMs = comeBackInMs(error, status);
  if (askAgainInMs === null) return {};
  return { 'Retry-After': String(Math.max(1, Math.ceil(askAgainInMs / 1_000))) };
}

/** Null for whoever would only hear the same, or could do harm: after an unknown outcome somebody has to look first. */
function comeBackInMs(error: LockError, status: number): number | null {
  if (error.outcome !== 'not-started') return null;
  const untilFreeMs = 'retryAfterMs' in error ? Number(error.retryAfterMs) : 0;
  if (status === 423) return untilFreeMs;
  // The record of a running call is renewed for as long as it runs, so its lease says little about when that ends.
  if (error.code === 'IDEMPOTENCY_IN_PROGRESS') return Math.min(untilFreeMs, ASK_AGAIN_MS);
  return error.code === 'STORE_UNAVAILABLE' || error.code === 'SHUTTING_DOWN' ? ASK_AGAIN_MS : null;
}
