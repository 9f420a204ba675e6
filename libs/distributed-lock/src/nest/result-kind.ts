import { isObservable } from 'rxjs';

import { LockConfigInvalidError } from '../core/index.js';
import type { MethodPlace, MethodSource } from './method-source.js';

/**
 * How long a call lasts. `promise`: until it settles. `observable`: from subscribe to complete, error or unsubscribe.
 * `async-iterable`: from the first `next()` to the end, `return()` or `throw()`.
 */
export type ResultKind = 'promise' | 'observable' | 'async-iterable';

/**
 * Known before the method first runs, because an Observable must not be made before the lock is held: from the kind of
 * function (`async`, `async *`), else from the declared return type that TypeScript leaves in the metadata. What is
 * then left, a method without `async` whose type is inferred, counts as returning a promise; if it comes to something
 * else, the call is refused by {@link requireSettled} and never runs on without the lock.
 */
export function resultKindOf(
  place: MethodPlace,
  source: MethodSource | undefined,
  label: string,
): ResultKind {
  const { async = false, generator = false } = source ?? tagOf(place.method);
  if (generator && !async) {
    throw new LockConfigInvalidError(
      `@Locked on ${label}: a generator cannot wait for a lock. Make it an async generator: async *${String(place.name)}().`,
    );
  }
  if (generator) return 'async-iterable';
  if (async) return 'promise';
  const declared: unknown = Reflect.getMetadata('design:returntype', place.owner, place.name);
  return isObservableClass(declared) ? 'observable' : 'promise';
}

/**
 * Passes on what a `promise` method came to, unless that only starts to run when it is read.
 *
 * @throws {LockConfigInvalidError} says which way of declaring the method keeps the lock for as long as the stream
 */
export function requireSettled(value: unknown, label: string): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (isObservable(value)) throw outlives(label, 'an Observable', 'observable');
  if (Symbol.asyncIterator in value) throw outlives(label, 'an async iterable', 'async-iterable');
  if ('getStream' in value && typeof value.getStream === 'function') {
    throw refusal(
      label,
      'a StreamableFile',
      'Return the content, and make the StreamableFile of it outside.',
    );
  }
  return value;
}

/** @throws {LockConfigInvalidError} the method returned something else than its kind says */
export function wrongKind(label: string, kind: ResultKind, value: unknown): LockConfigInvalidError {
  const shown = value instanceof Promise ? 'a promise' : `a value of type ${typeof value}`;
  return new LockConfigInvalidError(
    `@Locked on ${label}: it is declared to return an ${kind} and returned ${shown}. ` +
      'It ran under the lock, and its result was dropped; correct its return type or the option "returns".',
    { outcome: 'unknown' },
  );
}

function outlives(label: string, what: string, kind: ResultKind): LockConfigInvalidError {
  const declaration =
    kind === 'observable'
      ? 'Give the method the return type Observable<…>, imported without "type" so that Nest\'s metadata has it'
      : 'Make the method an async generator: async *';
  return refusal(label, what, `${declaration}; or write @Locked(key, { returns: '${kind}' }).`);
}

function refusal(label: string, what: string, advice: string): LockConfigInvalidError {
  return new LockConfigInvalidError(
    `@Locked on ${label}: it came to ${what}, which would run after the lock has been given back. ${advice}`,
    { outcome: 'unknown' },
  );
}

function tagOf(method: MethodPlace['method']): Pick<MethodSource, 'async' | 'generator'> {
  const tag = Object.prototype.toString.call(method);
  return { async: tag.includes('Async'), generator: tag.includes('Generator') };
}

/** By its shape: with two copies of RxJS, the class is another one. */
function isObservableClass(type: unknown): boolean {
  const prototype = typeof type === 'function' ? (type.prototype as unknown) : undefined;
  return (
    typeof prototype === 'object' && prototype !== null && 'subscribe' in prototype && 'pipe' in prototype
  );
}
