import { isObservable, Observable } from 'rxjs';

import {
  beginHandOver,
  labelledKey,
  LockConfigInvalidError,
  TokenRequiredError,
  type OpenHandOver,
} from '../core/index.js';
import type { AcceptingSite } from './accepting-site.js';
import { Arrival, FENCING_TOKEN_HEADER, readToken } from './fencing-token.js';
import { locksFor } from './locks-of-object.js';

/** One call of a handler that takes a token. */
export class AcceptingCall {
  readonly #args: readonly unknown[];
  readonly #arrival: Arrival | undefined;

  constructor(
    private readonly site: AcceptingSite,
    private readonly self: unknown,
    args: readonly unknown[],
  ) {
    const last = args[site.arrivalIndex];
    this.#arrival = last instanceof Arrival ? last : undefined;
    this.#args = this.#arrival ? args.filter((one) => one !== last) : args;
  }

  /** Runs the handler once the fences know its token; what it comes to may be a stream, which then shows it as well. */
  async run(): Promise<unknown> {
    const locks = locksFor(this.site, this.self);
    const token = this.#token();
    if (token === undefined) return this.#invoke();
    const handedOver = { key: labelledKey(this.site.keyOf(this.#args)).key, token };
    await locks.acceptToken(handedOver, this.site.store);
    return showing(beginHandOver([handedOver]), () => this.#invoke());
  }

  /** Undefined when none came, and none has to. */
  #token(): number | undefined {
    const { label, required } = this.site;
    const given = this.#given();
    if (given !== undefined && given !== null) return readToken(given, label);
    if (!required) return undefined;
    throw new TokenRequiredError(
      `${label} was called without a fencing token, and did not run. Send the token of the hold with the call: the header ` +
        `${FENCING_TOKEN_HEADER} from fencingHeaders(), or what its option "from" reads.`,
    );
  }

  #given(): unknown {
    const { from, label } = this.site;
    if (from) return from(...(this.#args as never[]));
    if (!this.#arrival || this.#arrival.by === 'http') return this.#arrival?.header;
    throw new LockConfigInvalidError(
      `${label} takes its fencing token from a header of HTTP, and was called by "${this.#arrival.by}". It did not run; ` +
        'say where the token is: @AcceptFencingToken(key, { from: (data) => data.fencingToken }).',
    );
  }

  #invoke(): unknown {
    return this.site.method.apply(this.self, this.#args as never[]);
  }
}

async function showing(handOver: OpenHandOver, work: () => unknown): Promise<unknown> {
  try {
    const result = await handOver.run(work);
    if (isObservable(result)) return streamed(handOver, result);
    handOver.end();
    return result;
  } catch (error) {
    handOver.end();
    throw error;
  }
}

function streamed(handOver: OpenHandOver, source: Observable<unknown>): Observable<unknown> {
  return new Observable((subscriber) => {
    subscriber.add(() => handOver.end());
    const inner = handOver.run(() =>
      source.subscribe({
        next: (value) => subscriber.next(value),
        error: (error: unknown) => subscriber.error(error),
        complete: () => subscriber.complete(),
      }),
    );
    subscriber.add(inner);
  });
}
