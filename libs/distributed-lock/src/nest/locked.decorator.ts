import type { Observable } from 'rxjs';

import { enteringBody, onceOnly, sitesBelow } from './idempotent/index.js';
import { LockedCall, lockedPromise } from './locked-call.js';
import { lockedIterable } from './locked-iterable.js';
import { lockedObservable } from './locked-observable.js';
import type { LockedOptions, OnBusy } from './locked-options.js';
import { lockedSite, noteSite } from './locked-site.js';
import type { Fits, Method } from './locked-typing.js';
import type { KeySource } from './method-key.js';
import { isStaticOwner } from './method-source.js';
import { injectLocks, inPlaceOf, methodBelow } from './method-wrapper.js';

/** What `@Locked(…)` returns. It checks the method against the key and the options. */
export type LockedDecorator<K, Busy extends OnBusy> = <M extends Method>(
  target: object,
  name: string | symbol,
  descriptor?: TypedPropertyDescriptor<M> & Fits<M, K, Busy>,
) => void;

/**
 * Runs every call of the method while holding the lock that its arguments name.
 *
 * `key` is a template (`'invoice:<id>'`, `'<invoice.id>'`, `'<0>'`: a parameter by name or position, and what it holds),
 * a `lockKey()`, or a function of the same parameters that returns one key. It is the whole key: neither class nor method
 * is added, so two methods with one key exclude each other. A default value of a parameter is not seen; a missing value
 * refuses the call.
 *
 * The lock lasts until the promise settles; for an Observable from subscribe to complete, error or unsubscribe; for an
 * async iterable from the first `next()` to its end. A nested call on a key that the call chain holds joins that hold.
 * A lost lease does not stop the method: it rejects with `LEASE_LOST` when it ends. An override without `@Locked` is not
 * locked.
 *
 * The call rejects, and the method does not run, with `LOCK_TIMEOUT` (busy; see `onBusy`), `STORE_UNAVAILABLE`,
 * `LOCK_KEY_INVALID` (a value is undefined, null, '', NaN or an object), `SHUTTING_DOWN`, or `LOCK_CONFIG_INVALID` (the
 * object was made outside Nest).
 *
 * @throws {LockConfigInvalidError} when the class is loaded: a template names no parameter, or this is no method
 */
export function Locked<K extends KeySource, Busy extends OnBusy>(
  key: K,
  options: LockedOptions<Busy> = {},
): LockedDecorator<K, Busy> {
  return (target, name, descriptor) => {
    const method = methodBelow('@Locked', target, name, descriptor);
    const below = sitesBelow(target, name);
    const site = enteringBody(lockedSite({ owner: target, name, method }, key, options), below);
    const wrapper = inPlaceOf(method, (self, args) =>
      onceOnly(below, self, args, (given) => begin(new LockedCall(site, self, given))),
    );
    (descriptor as PropertyDescriptor).value = wrapper;
    noteSite({ site, wrapper });
    if (!isStaticOwner(target)) injectLocks(target);
  };
}

function begin(call: LockedCall): Promise<unknown> | Observable<unknown> | AsyncGenerator<unknown> {
  switch (call.site.kind) {
    case 'promise':
      return lockedPromise(call);
    case 'observable':
      return lockedObservable(call);
    case 'async-iterable':
      return lockedIterable(call);
  }
}
