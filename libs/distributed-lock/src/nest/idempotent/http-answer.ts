import { HttpException, Logger } from '@nestjs/common';

import { toTypedJson, type FinalErrors, type ResultClasses } from '../../idempotency/index.js';
import type { HttpResponse } from './http-exchange.js';

/** What is kept of an answer. */
interface HttpAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly value: unknown;
}

interface HttpFailure {
  readonly status: number;
  readonly response: string | object;
  readonly headers: Readonly<Record<string, unknown>>;
}

/** The others belong to one exchange or one person: cookies, dates, lengths, rate limits, CORS. */
const KEPT_HEADERS = [
  'Content-Type',
  'Content-Language',
  'Content-Location',
  'Location',
  'ETag',
  'Last-Modified',
  'Link',
  'Cache-Control',
];

/** Business decisions, which a repeated request must not decide again. Anything else may go well the next time. */
const FINAL_STATUS: ReadonlySet<number> = new Set([402, 404, 409, 410, 422]);

const logger = new Logger('DistributedLock');

/** The answer to one request: kept with status and headers, and marked when it is given again. */
export class AnswerKeeper {
  #mine: HttpAnswer | undefined;

  constructor(
    private readonly response: HttpResponse,
    private readonly label: string,
    private readonly classes: ResultClasses = {},
  ) {}

  /** For the handler's own result. */
  keep(value: unknown): HttpAnswer {
    this.#mine = { status: this.response.statusCode, headers: this.#headers(), value: this.#storable(value) };
    return this.#mine;
  }

  /** What Nest is to send: `live` for the request that did the work, what was kept for its repetitions. */
  give(answer: unknown, live: unknown): unknown {
    if (answer === this.#mine) {
      this.response.header('Idempotency-Status', 'created');
      return live;
    }
    const { status, headers, value } = answer as HttpAnswer;
    this.#replay(status, headers);
    return value;
  }

  /** Exceptions of the handler that are answers. */
  readonly finalErrors: FinalErrors = {
    describe: (error): HttpFailure | undefined => {
      if (!(error instanceof HttpException) || !FINAL_STATUS.has(error.getStatus())) return undefined;
      return { status: error.getStatus(), response: error.getResponse(), headers: this.#headers() };
    },
    revive: (kept) => {
      const { status, response, headers } = kept as HttpFailure;
      this.#replay(status, headers);
      return new HttpException(response, status);
    },
  };

  #headers(): Record<string, unknown> {
    const set = KEPT_HEADERS.map((name) => [name, this.response.getHeader(name)] as const);
    return Object.fromEntries(set.filter(([, value]) => value !== undefined));
  }

  #replay(status: number, headers: Readonly<Record<string, unknown>>): void {
    const { response } = this;
    response.status(status);
    for (const [name, value] of Object.entries({ 'Cache-Control': 'no-store', ...headers }))
      response.header(name, value);
    response.header('Idempotent-Replayed', 'true');
    response.header('Idempotency-Status', 'replayed');
  }

  /**
   * A repetition would get a plain object, past the serializer that knows the class and what it hides: so an instance that
   * cannot be made again is not kept at all. A function has no text, which makes the store keep "done" and no more.
   */
  #storable(value: unknown): unknown {
    let unknown: string | undefined;
    try {
      toTypedJson(value, { classes: this.classes, onPlain: (name) => (unknown = name) });
    } catch {
      return value; // The store finds the same, and tells.
    }
    if (unknown === undefined) return value;
    logger.warn(
      `${this.label} returned an instance of ${unknown}, so its answer is not kept, and repeated requests get an error. ` +
        `Return plain data, or write @Idempotent({ classes: { ${unknown}: { type: ${unknown} } } }).`,
    );
    return () => unknown;
  }
}
