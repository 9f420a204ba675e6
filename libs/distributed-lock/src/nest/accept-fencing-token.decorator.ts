import { defer, isObservable, mergeMap, of, type Observable } from 'rxjs';

import { AcceptingCall } from './accepting-call.js';
import {
  acceptingSite,
  letArrive,
  type AcceptFencingTokenOptions,
  type AcceptingSite,
  type TokenSource,
} from './accepting-site.js';
import { enteringBody, sitesBelow } from './idempotent/index.js';
import { noteSite } from './locked-site.js';
import type { Fits, Method } from './locked-typing.js';
import type { KeySource } from './method-key.js';
import { isStaticOwner } from './method-source.js';
import { injectLocks, inPlaceOf, methodBelow } from './method-wrapper.js';

/** What `@AcceptFencingToken(…)` returns. It checks the handler against the key and `from`. */
export type AcceptingDecorator<K, From extends TokenSource> = <M extends Method>(
  target: object,
  name: string | symbol,
  descriptor?: TypedPropertyDescriptor<M> & Fits<M, K, 'throw'> & FitsSource<M, From>,
) => void;

/** All of {@link TokenSource} is what the compiler falls back to when the option is not given. */
type FitsSource<M extends Method, From> = [TokenSource] extends [From] ? unknown : Fits<M, From, 'throw'>;

/**
 * Runs every call of the handler under a fencing token that its caller has sent, for a lock that the caller holds: its
 * guarded writes to rows of `key` pass only while that token is the newest.
 *
 * `key` is made from the handler's own parameters, as for `@Locked`; only the number travels. For HTTP it is in the header
 * `Fencing-Token` (`fencingHeaders()` on the other side), for messages and jobs where `from` finds it:
 * `@AcceptFencingToken(InvoiceKey, { from: (data: Order) => data.fencingToken })`.
 *
 * Before the handler runs, every database of this application that guards rows of the key is asked. A token behind its
 * fence is refused. One ahead is believed, here and nowhere else, and raises the fence: this service then refuses the
 * sender's predecessors without ever seeing the lock store. So let only callers reach the route whom you believe; a token
 * from more than a minute ahead of the database's clock is refused. Where no database guards the key, the token is only
 * handed on. No lock is taken, and calls with one token may run side by side.
 *
 * The call rejects, and the handler does not run, with `FENCING_TOKEN_REQUIRED` (HTTP 428), `FENCING_TOKEN_INVALID` (400: no
 * number, two of them, from the future), `FENCED_OUT` (409), `STORE_UNAVAILABLE` (503) or `LOCK_KEY_INVALID` (400). With
 * `FENCED_OUT` (503, outcome `unknown`) it ends when a write is refused because a newer owner came meanwhile.
 *
 * @throws {LockConfigInvalidError} when the class is loaded: a template names no parameter, or this is no handler
 */
export function AcceptFencingToken<K extends KeySource, From extends TokenSource = TokenSource>(
  key: K,
  options: AcceptFencingTokenOptions<From> = {},
): AcceptingDecorator<K, From> {
  return (target, name, descriptor) => {
    const method = methodBelow('@AcceptFencingToken', target, name, descriptor);
    const below = sitesBelow(target, name);
    const site = enteringBody(acceptingSite({ owner: target, name, method }, key, options), below);
    const wrapper = inPlaceOf(method, (self, args) => begin(site, new AcceptingCall(site, self, args)));
    (descriptor as PropertyDescriptor).value = wrapper;
    letArrive(site);
    noteSite({ site, wrapper });
    if (!isStaticOwner(target)) injectLocks(target);
  };
}

function begin({ streams }: AcceptingSite, call: AcceptingCall): Promise<unknown> | Observable<unknown> {
  if (!streams) return call.run();
  const asked = defer(() => call.run());
  return asked.pipe(mergeMap((result) => (isObservable(result) ? result : of(result))));
}
