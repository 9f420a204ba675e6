import { Req, Res } from '@nestjs/common';

import { IdempotencyKeyInvalidError } from '../../idempotency/index.js';
import type { IdempotentSite } from './idempotent-site.js';

/** What this needs of a request of Express or Fastify. */
export interface HttpRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, unknown>>;
  readonly params?: unknown;
  readonly query?: unknown;
  readonly body?: unknown;
  readonly user?: unknown;
  /** Express. */
  readonly route?: { readonly path?: unknown };
  /** Fastify. */
  readonly routeOptions?: { readonly url?: unknown };
}

/** What this needs of a response of Express or Fastify. */
export interface HttpResponse {
  /** Express. */
  readonly headersSent?: boolean;
  /** Fastify. */
  readonly sent?: boolean;
  readonly raw?: { readonly headersSent: boolean };
  readonly statusCode: number;
  status(code: number): unknown;
  header(name: string, value: unknown): unknown;
  getHeader(name: string): unknown;
}

/** A request and its response, as an argument of a handler, which the handler itself never sees. */
export class HttpExchange {
  constructor(
    readonly request: HttpRequest,
    readonly response: HttpResponse,
  ) {}
}

/**
 * Has Nest pass request and response behind the method's own arguments. As the kinds of Nest itself: pipes of the whole handler
 * run on every other kind as if it were a body.
 */
export function letExchangeArrive({ owner, name, requestIndex }: IdempotentSite): void {
  Req()(owner, name, requestIndex);
  Res({ passthrough: true })(owner, name, requestIndex + 1);
}

/** The arguments with request and response, if Nest has passed them, as one {@link HttpExchange} at the end. */
export function withExchange({ requestIndex }: IdempotentSite, args: readonly unknown[]): readonly unknown[] {
  const [request, response] = args.slice(-2);
  if (args.length <= requestIndex || !isRequest(request) || !isResponse(response)) return args;
  return [...args.slice(0, -2), new HttpExchange(request, response)];
}

function isRequest(value: unknown): value is HttpRequest {
  return typeof value === 'object' && value !== null && 'headers' in value;
}

function isResponse(value: unknown): value is HttpResponse {
  return typeof value === 'object' && value !== null && 'header' in value && 'getHeader' in value;
}

export const IDEMPOTENCY_KEY_HEADER = 'Idempotency-Key';

/** Printable ASCII without quotes, commas and backslashes: what no proxy and no library reads in two ways. */
const WRITTEN_KEY = /^[ !#-+\--[\]-~]{1,255}$/;

/** Of HTTP: trim() would also take other spaces away, which are a part of the key, and not allowed there. */
const SPACE_AROUND = /^[ \t]+|[ \t]+$/g;

/**
 * The key that a client sent; `"abc"` and `abc` are the same one. Two headers come as one, joined with a comma, so they are no key.
 *
 * @throws {IdempotencyKeyInvalidError} there is none, there are several, or it is not well-formed
 */
export function clientKeyOf({ headers = {} }: HttpRequest, label: string): string {
  const given = headers[IDEMPOTENCY_KEY_HEADER.toLowerCase()];
  if (given === undefined) throw invalid(label, 'has no header Idempotency-Key');
  const key = typeof given === 'string' ? unquoted(given.replace(SPACE_AROUND, '')) : '';
  if (WRITTEN_KEY.test(key)) return key;
  throw invalid(
    label,
    'has an Idempotency-Key that is empty, longer than 255 characters, was sent twice, or holds a quote, a comma, a backslash or ' +
      'anything but printable ASCII',
  );
}

function unquoted(text: string): string {
  return /^".*"$/.test(text) ? text.slice(1, -1) : text;
}

/** `POST /invoices/:id/pay`: it stays the same when a class or a method gets another name. */
export function routeOf({ method, route, routeOptions }: HttpRequest): string | undefined {
  const path = route?.path ?? routeOptions?.url;
  return typeof path === 'string' && method ? `${method} ${path}` : undefined;
}

/** True when somebody has sent the answer, or its beginning, past Nest. */
export function isSent({ headersSent, sent, raw }: HttpResponse): boolean {
  return headersSent === true || sent === true || raw?.headersSent === true;
}

/** What was asked for, as it came: before pipes made something else of it. */
export function payloadOf({ params, query, body }: HttpRequest): unknown {
  return [plain(params), plain(query), body];
}

/** Express makes these without a prototype, or with one of its own. */
function plain(values: unknown): unknown {
  return typeof values === 'object' && values !== null ? { ...values } : values;
}

function invalid(label: string, what: string): IdempotencyKeyInvalidError {
  return new IdempotencyKeyInvalidError(
    `A request for ${label} ${what}. The handler did not run; send one header with a key that is new for each operation ` +
      'and the same when it is repeated, e.g. a UUID.',
  );
}
