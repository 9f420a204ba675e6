import { Logger } from '@nestjs/common';

import { toTypedJson, type FinalErrors, type ResultClasses } from '../../idempotency/index.js';
import { isSent, type HttpResponse } from './http-exchange.js';
import { exceptionFrom, failureOf, type HttpFailure } from './http-failure.js';

/** What is kept of an answer. */
interface HttpAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly value: unknown;
}

/** The others belong to one exchange or one person: cookies, dates, lengths, rate limits, CORS. */
const KEPT_HEADERS = [
  'Content-Type',
  'Content-Encoding',
  'Content-Disposition',
  'Content-Language',
  'Content-Location',
  'Location',
  'ETag',
  'Last-Modified',
  'Link',
  'Cache-Control',
];

const logger = new Logger('DistributedLock');

/** The answer to one request: kept with status and headers, and marked when it is given again. */
export class AnswerKeeper {
  #mine: { readonly answer: unknown; readonly live: unknown } | undefined;

  constructor(
    private readonly response: HttpResponse,
    private readonly label: string,
    private readonly classes: ResultClasses = {},
  ) {}

  /** For the handler's own result. */
  keep(live: unknown): HttpAnswer {
    const value = this.#storable(live);
    const answer = { status: this.response.statusCode, headers: this.#headers(), value };
    this.#mine = { answer, live };
    return answer;
  }

  /** What Nest is to send: the live result for the request that did the work, what was kept for its repetitions. */
  give(answer: unknown): unknown {
    if (answer === this.#mine?.answer) {
      this.#mark('created');
      return this.#mine?.live;
    }
    const { status, headers, value } = answer as HttpAnswer;
    this.#replay(status, headers);
    return value;
  }

  /** Exceptions of the handler that are answers. */
  readonly finalErrors: FinalErrors = {
    describe: (error) => {
      const failure = failureOf(error, this.#headers(), this.classes);
      if (failure) this.#mark('created');
      return failure;
    },
    revive: (kept) => {
      const failure = kept as HttpFailure;
      this.#replay(failure.status, failure.headers);
      return exceptionFrom(failure);
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
    this.#mark('replayed');
  }

  #mark(status: 'created' | 'replayed'): void {
    if (!isSent(this.response)) this.response.header('Idempotency-Status', status);
  }

  /**
   * What has no text makes the store keep "done" and no more. So it is for an answer that went out past Nest, and for an
   * instance that cannot be made again: a repetition would get a plain object, past the serializer that knows the class and
   * what it hides.
   */
  #storable(value: unknown): unknown {
    const why = isSent(this.response) ? SENT_PAST_NEST : this.#whyUnknown(value);
    if (why === undefined) return value;
    logger.warn(`${this.label} ${why}`);
    return NOT_KEPT;
  }

  #whyUnknown(value: unknown): string | undefined {
    let name: string | undefined;
    try {
      toTypedJson(value, { classes: this.classes, onPlain: (found) => (name = found) });
    } catch {
      return undefined; // The store finds the same, and tells.
    }
    return name === undefined
      ? undefined
      : `returned an instance of ${name}, so its answer is not kept, and repeated requests get an error. Return plain data, ` +
          `or write @Idempotent({ classes: { ${name}: { type: ${name} } } }).`;
  }
}

const NOT_KEPT = Symbol('not kept');
const SENT_PAST_NEST =
  'has sent its answer through the response itself, so that it cannot be kept, and repeated requests get an error. Return it.';
