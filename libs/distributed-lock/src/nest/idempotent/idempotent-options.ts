import type { IdempotencyDefaults, IdempotencyListener, IdempotencyStore } from '../../idempotency/index.js';
import type { ResultEncryption, RunOnceOptions } from '../../idempotency/index.js';

/** Who sent a request, e.g. `(request: { user: { id: string } }) => request.user.id`. */
export type CallerOfRequest = (request: never) => string | undefined;

/** Durations are milliseconds. What is left out comes from the module's `idempotency.defaults`. */
export interface IdempotentOptions extends Omit<
  RunOnceOptions<unknown>,
  'fingerprint' | 'around' | 'signal'
> {
  /**
   * A stable name of what is done, e.g. `'payments.create'`, where no key is written: renaming the method then forgets
   * nothing. Default `POST /route/:id` for the header form, `Class.method` otherwise; with a key, none.
   */
  readonly name?: string;
  /**
   * Whoever may see the answer. Where the key comes in a header, a function of the request; elsewhere of the arguments.
   * `'global'`: one answer for everybody, and for every tenant.
   */
  readonly scope?: 'global' | ((...args: never[]) => string | undefined);
  /**
   * What tells this call from another one with the same key: a function of the arguments. Default: all of them, and for
   * the header form route parameters, query and body. False: nothing is compared.
   */
  readonly fingerprint?: false | ((...args: never[]) => unknown);
}

/** What `forRoot({ idempotency })` takes. */
export interface IdempotencyModuleOptions {
  /** E.g. `memoryIdempotencyStore()`, or a function that makes one for each application. */
  readonly store: IdempotencyStore | (() => IdempotencyStore);
  readonly defaults?: IdempotencyDefaults;
  readonly encryption?: ResultEncryption;
  /** The sender of a request, for handlers that take the key from a header and have no `scope` of their own. */
  readonly caller?: CallerOfRequest;
  /** Told of everything that happens, as `LockEvents` is. What it throws is dropped. */
  readonly onEvent?: IdempotencyListener;
  /**
   * Deletes expired records about this often, in batches and in one process at a time, in milliseconds. Default one hour, of
   * which records that are kept for a day are a small part; `Infinity` leaves it to you. Nothing where the store does it.
   */
  readonly purgeEveryMs?: number;
}
