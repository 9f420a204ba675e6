import 'reflect-metadata';

import { Inject } from '@nestjs/common';
import type { Observable } from 'rxjs';

import { LockConfigInvalidError } from '../core/index.js';
import { LockedCall, lockedPromise } from './locked-call.js';
import { lockedIterable } from './locked-iterable.js';
import { lockedObservable } from './locked-observable.js';
import type { LockedOptions, OnBusy } from './locked-options.js';
import { labelOf, lockedSite, noteSite, type LockedSite } from './locked-site.js';
import type { Fits, Method } from './locked-typing.js';
import { hideLocksOn } from './locks-of-object.js';
import type { KeySource } from './method-key.js';
import { isStaticOwner } from './method-source.js';
import { LOCKS, LOCKS_PROPERTY } from './tokens.js';

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
    const method: unknown = descriptor?.value;
    if (typeof method !== 'function' || typeof name === 'object') throw notAMethod(target, name);
    const site = lockedSite({ owner: target, name, method: method as Method }, key, options);
    const wrapper = inPlaceOf(method as Method, site);
    (descriptor as PropertyDescriptor).value = wrapper;
    noteSite({ site, wrapper });
    if (!isStaticOwner(target)) injectLocks(target);
  };
}

/** The application's service reaches the object as any other dependency, so a missing module fails at boot. */
function injectLocks(prototype: object): void {
  hideLocksOn(prototype);
  Inject(LOCKS)(prototype, LOCKS_PROPERTY);
}

/** A function with everything that others may have hung on the method: name, length, properties and metadata. */
function inPlaceOf(method: Method, site: LockedSite): Method {
  const wrapper = function (this: unknown, ...args: unknown[]): unknown {
    return begin(new LockedCall(site, this, args));
  };
  for (const key of Reflect.ownKeys(method)) {
    if (BELONGS_TO_ONE_FUNCTION.has(key)) continue;
    Object.defineProperty(wrapper, key, Object.getOwnPropertyDescriptor(method, key) as PropertyDescriptor);
  }
  for (const key of Reflect.getOwnMetadataKeys(method) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, method), wrapper);
  }
  return wrapper;
}

const BELONGS_TO_ONE_FUNCTION: ReadonlySet<string | symbol> = new Set(['prototype', 'arguments', 'caller']);

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

function notAMethod(target: object, name: unknown): LockConfigInvalidError {
  if (typeof name === 'object') {
    return new LockConfigInvalidError(
      '@Locked is a decorator of the kind that Nest uses: set "experimentalDecorators" in tsconfig.json.',
    );
  }
  return new LockConfigInvalidError(
    `@Locked on ${labelOf(target, name as string | symbol)}: only a method can be locked, and this is none. ` +
      'Make it a method, or use LockService.withLock() inside.',
  );
}
