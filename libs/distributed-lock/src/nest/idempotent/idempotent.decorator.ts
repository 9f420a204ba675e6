import { noteSite, type MethodSite } from '../locked-site.js';
import type { FitsKey, IsAny, Method } from '../locked-typing.js';
import type { KeySource } from '../method-key.js';
import { isStaticOwner } from '../method-source.js';
import { injectLocks, inPlaceOf, methodBelow } from '../method-wrapper.js';
import { withExchange } from './http-exchange.js';
import { IdempotentCall } from './idempotent-call.js';
import type { IdempotentOptions } from './idempotent-options.js';
import { idempotentSite, isIdempotent, isKey, sitesBelow } from './idempotent-site.js';
import { enterBody, isPassing } from './passage.js';

/** What `@Idempotent(…)` returns. It checks the method against the key. */
export type IdempotentDecorator<K> = <M extends Method>(
  target: object,
  name: string | symbol,
  descriptor?: TypedPropertyDescriptor<M> & FitsKey<M, K> & FitsPromise<ReturnType<M>>,
) => void;

type FitsPromise<R> =
  IsAny<R> extends true
    ? unknown
    : [R] extends [Promise<infer T>]
      ? [Promise<T>] extends [R]
        ? unknown
        : NoPromise
      : NoPromise;

interface NoPromise {
  readonly '@Idempotent needs a method that returns a Promise': never;
}

/**
 * Runs the method once for each key, and gives every further call the answer of the first, with its types.
 *
 * With a key (a template such as `'payout:<id>'`, a `lockKey()`, or a function of the same parameters) calls are the same
 * when the key is; other arguments under a known key are refused. Without one, a handler of HTTP takes the key from the
 * header `Idempotency-Key`, and answers repetitions with the same status, body and headers such as `Location`; any other
 * method is the same call when its arguments are.
 *
 * Together with `@Locked`, in either order, the record is claimed first and the lock taken then: while the key is busy
 * nothing counts as done. `LockContext.idempotencyKey` is what to tell others so that they, too, do it once.
 *
 * It does not promise that the method begins only once: after a crash it runs again unless `onCrash` says otherwise.
 *
 * The call rejects, and the method does not run, with `IDEMPOTENCY_IN_PROGRESS` (409: at work elsewhere for all of `waitMs`;
 * default 10 000, and 0 with the header), `IDEMPOTENCY_KEY_REUSED` (422: the key came with other data),
 * `IDEMPOTENCY_KEY_INVALID` (400), `IDEMPOTENCY_OUTCOME_UNKNOWN` (503), `IDEMPOTENCY_RESULT_OMITTED` (500: done, and the
 * answer was not kept), `STORE_UNAVAILABLE` (503) or `SHUTTING_DOWN`.
 *
 * @throws {LockConfigInvalidError} when the class is loaded: a template names no parameter, or the method returns a stream
 */
export function Idempotent(options?: IdempotentOptions): IdempotentDecorator<string>;
export function Idempotent<K extends KeySource>(key: K, options?: IdempotentOptions): IdempotentDecorator<K>;
export function Idempotent(
  keyOrOptions: KeySource | IdempotentOptions = {},
  more: IdempotentOptions = {},
): IdempotentDecorator<KeySource> {
  const [key, options] = isKey(keyOrOptions) ? [keyOrOptions, more] : [undefined, keyOrOptions];
  return (target, name, descriptor) => {
    const method = methodBelow('@Idempotent', target, name, descriptor);
    const below = sitesBelow(target, name);
    const site = idempotentSite({ owner: target, name, method }, key, options);
    const wrapper = inPlaceOf(method, (self, args) =>
      onceOnly(below.length > 0 ? [...below, site] : [site], self, args, (given) => {
        const invoke = (): unknown => method.apply(self, given as never[]);
        return below.length > 0 ? invoke() : enterBody(site, invoke);
      }),
    );
    (descriptor as PropertyDescriptor).value = wrapper;
    noteSite({ site, wrapper });
    if (!isStaticOwner(target)) injectLocks(target);
  };
}

/**
 * For the wrapper of each of our decorators: the outermost one of a method that is idempotent begins the call, the others
 * are on its way.
 */
export function onceOnly(
  sites: readonly MethodSite[],
  self: unknown,
  args: readonly unknown[],
  rest: (args: readonly unknown[]) => unknown,
): unknown {
  const site = sites.find(isIdempotent);
  if (!site || isPassing(site)) return rest(args);
  return new IdempotentCall(site, self, withExchange(site, args)).run(rest);
}
