import type { Observable } from 'rxjs';

import type { KeyTemplate } from '../core/index.js';
import type { OnBusy } from './locked-options.js';

/** Any method. The descriptor's type parameter is invariant, so nothing narrower would accept every method. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- the one place: the decorator has to accept every method
export type Method = (...args: any[]) => unknown;

/*
 * `unknown` lets the decorator be applied. An object type refuses it, and its key is the sentence that the compiler
 * then shows: "Property '…' is missing".
 */

/** What the method, the key and `onBusy` have to be to each other. */
export type Fits<M extends Method, K, Busy extends OnBusy> = FitsKey<M, K> &
  FitsResult<ReturnType<M>> &
  FitsBusy<M, Busy>;

/** The key, when it is a function, takes the parameters of the method. */
export type FitsKey<M extends Method, K> = K extends string | { readonly template: KeyTemplate }
  ? unknown
  : K extends (...args: infer A) => unknown
    ? Unless<
        M,
        TakesArgumentsOf<M, A>,
        { readonly 'the key function has to take the parameters of the method': never }
      >
    : unknown;

type FitsResult<R> =
  IsAny<R> extends true
    ? unknown
    : [R] extends [Promise<infer T>]
      ? Accepts<R, Promise<T>> &
          Unless<
            R,
            SettlesAtOnce<T>,
            { readonly 'a stream inside a promise would outlive the lock: return the stream itself': never }
          >
      : [R] extends [Observable<infer T>]
        ? Accepts<R, Observable<T>>
        : [R] extends [AsyncIterable<infer T>]
          ? Accepts<R, AsyncGenerator<T>>
          : NotAsync;

interface NotAsync {
  readonly '@Locked needs a method that returns a Promise, an Observable or an AsyncIterable': never;
}

/** The caller gets our promise, stream or generator: a method that promises a subclass of them cannot be locked. */
type Accepts<R, Given> = [Given] extends [R] ? unknown : NotAsync;

/** All of {@link OnBusy} is what the compiler falls back to when the option is not given. */
type FitsBusy<M extends Method, Busy extends OnBusy> = [OnBusy] extends [Busy]
  ? unknown
  : Busy extends 'skip'
    ? FitsSkip<ReturnType<M>>
    : Busy extends (busy: never, ...args: infer A) => infer R
      ? FitsInstead<ReturnType<M>, R> &
          Unless<
            M,
            TakesArgumentsOf<M, A>,
            { readonly 'onBusy has to take the parameters of the method, after the busy key': never }
          >
      : unknown;

type FitsSkip<R> =
  IsAny<R> extends true
    ? unknown
    : [R] extends [Promise<infer T>]
      ? [undefined] extends [T]
        ? unknown
        : [void] extends [T]
          ? unknown
          : { readonly "onBusy: 'skip' needs a result that may be undefined": never }
      : unknown;

type FitsInstead<R, Instead> =
  IsAny<R> extends true
    ? unknown
    : [Instead] extends [R | (R extends Promise<infer T> ? T : never)]
      ? unknown
      : { readonly 'onBusy has to return what the method returns': never };

/*
 * Conditions are `true` or `never`. With the type parameter of a class in them they stay open, and an open condition
 * accepts nothing; looked at through a box, it only has to be impossible to refuse. `Given` keeps the compiler from
 * looking before the method is known.
 */

type Unless<Given, Condition, Refusal> = [Given, Boxed<Condition>] extends [unknown, Boxed<never>]
  ? Refusal
  : unknown;

interface Boxed<T> {
  readonly boxed: T;
}

type TakesArgumentsOf<M extends Method, A extends unknown[]> = ((...args: A) => void) extends (
  ...args: Parameters<M>
) => void
  ? true
  : never;

type SettlesAtOnce<T> = [T] extends [never] ? true : T extends Stream ? never : true;

type Stream = Observable<unknown> | AsyncIterable<unknown> | { getStream(): AsyncIterable<unknown> };

export type IsAny<T> = 0 extends 1 & T ? true : false;
