import { LockConfigInvalidError } from '../../core/index.js';
import { fingerprintOf, type IdempotentCall as Call, type RunOnceOptions } from '../../idempotency/index.js';
import { Arrival } from '../fencing-token.js';
import { locksFor } from '../locks-of-object.js';
import { callerOf } from './caller.js';
import { AnswerKeeper } from './http-answer.js';
import { clientKeyOf, HttpExchange, payloadOf, routeOf } from './http-exchange.js';
import { idempotencyOf, type AppIdempotency } from './idempotency-of-app.js';
import { isHttpHandler, type IdempotentSite } from './idempotent-site.js';
import { requireOneValue } from './one-value.js';
import { goThrough } from './passage.js';

type RunOptions = RunOnceOptions<unknown>;
type Rest = (args: readonly unknown[]) => unknown;

/** One call of a method that has one effect and one answer. */
export class IdempotentCall {
  readonly #exchange: HttpExchange | undefined;
  readonly #given: readonly unknown[];

  constructor(
    private readonly site: IdempotentSite,
    private readonly self: unknown,
    args: readonly unknown[],
  ) {
    this.#exchange = args.find((one) => one instanceof HttpExchange);
    this.#given = args.slice(0, this.#exchange ? args.indexOf(this.#exchange) : undefined);
  }

  /** `rest` leads to the method, through whatever other decorators there are. */
  async run(rest: Rest): Promise<unknown> {
    const app = idempotencyFor(this.site, this.self);
    const { call, fingerprint } = this.#identity(app);
    const { options } = this.site;
    const waitMs = options.waitMs ?? (this.#takesHeader ? 0 : undefined);
    const around = (body: () => Promise<unknown>): Promise<unknown> => this.#walk(rest, body);
    const run: RunOptions = { ...options, waitMs, fingerprint, around };
    if (!this.#exchange) return app.service.runOnce<unknown>(call, run, () => this.#body());
    return this.#answer(this.#exchange, (keeper) => {
      const finalErrors = options.finalErrors ?? keeper.finalErrors;
      const work = async (): Promise<unknown> => keeper.keep(await this.#body());
      return app.service.runOnce<unknown>(call, { ...run, finalErrors }, work);
    });
  }

  async #answer(
    { response }: HttpExchange,
    run: (keeper: AnswerKeeper) => Promise<unknown>,
  ): Promise<unknown> {
    const { label, options } = this.site;
    const keeper = new AnswerKeeper(response, label, options.classes);
    const answer = await run(keeper);
    return this.#skipped ? answer : keeper.give(answer);
  }

  #invoke: () => unknown = () => undefined;
  /** A lock on the way ended the call before the method, with a result of its own. */
  #skipped = false;

  async #body(): Promise<unknown> {
    return requireOneValue(await this.#invoke(), this.site.label);
  }

  async #walk(rest: Rest, body: () => Promise<unknown>): Promise<unknown> {
    this.#skipped = true;
    const enter = (invoke: () => unknown): Promise<unknown> => {
      this.#skipped = false;
      this.#invoke = invoke;
      return body();
    };
    return await goThrough(this.site, enter, () => rest(this.#given));
  }

  get #takesHeader(): boolean {
    return this.site.keyOf === undefined && isHttpHandler(this.site);
  }

  #identity(app: AppIdempotency): { call: Call; fingerprint: string | undefined } {
    const { keyOf, options, label } = this.site;
    const who = callerOf(
      this.site,
      app,
      this.#takesHeader ? this.#requireExchange().request : undefined,
      this.#given,
    );
    if (this.#takesHeader) {
      const { request } = this.#requireExchange();
      const operation = options.name ?? routeOf(request) ?? label;
      const call = { ...who, key: clientKeyOf(request, label), operation };
      return { call, fingerprint: this.#fingerprint(payloadOf(request)) };
    }
    const own = this.#ownArguments();
    if (keyOf)
      return {
        call: { ...who, key: keyOf(this.#given), operation: options.name },
        fingerprint: this.#fingerprint(own),
      };
    const key = this.#fingerprint(own) ?? label;
    return { call: { ...who, key, operation: options.name ?? label }, fingerprint: undefined };
  }

  #fingerprint(data: unknown): string | undefined {
    const { fingerprint } = this.site.options;
    if (fingerprint === false) return undefined;
    return fingerprintOf(fingerprint ? fingerprint(...(this.#given as never[])) : data);
  }

  /** Without what Nest or we put there, and without trailing gaps: `f(1)` and `f(1, undefined)` ask for the same. */
  #ownArguments(): unknown[] {
    const { leaseParameters } = this.site;
    const own = this.#given.map((one, index) =>
      leaseParameters.includes(index) || one instanceof Arrival ? undefined : one,
    );
    return own.slice(0, own.findLastIndex((one) => one !== undefined) + 1);
  }

  #requireExchange(): HttpExchange {
    if (this.#exchange) return this.#exchange;
    const { label } = this.site;
    throw new LockConfigInvalidError(
      `${label} takes its idempotency key from a header, and was called without a request. It did not run; write a key, ` +
        "@Idempotent('payment:<id>'), or put what both call into a method of a service.",
    );
  }
}

function idempotencyFor(site: IdempotentSite, self: unknown): AppIdempotency {
  const app = idempotencyOf(locksFor(site, self));
  if (app) return app;
  throw notConfigured(site);
}

export function notConfigured({ label }: IdempotentSite): LockConfigInvalidError {
  return new LockConfigInvalidError(
    `${label} has @Idempotent, and the application has no place for its records. Write ` +
      'DistributedLockModule.forRoot({ store, idempotency: { store: memoryIdempotencyStore() } }), or the store of Redis or ' +
      'TypeORM where several processes run.',
  );
}
