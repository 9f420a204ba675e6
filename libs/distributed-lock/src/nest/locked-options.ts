import type { LockOptions, LockTimeoutError } from '../core/index.js';
import type { ResultKind } from './result-kind.js';

/** A key that is held elsewhere. It is also the error that may be thrown: `throw busy`. */
export type BusyLock = LockTimeoutError & { readonly key: string; readonly store: string };

/**
 * What happens when the key stays held for all of `waitMs`.
 *
 * `'throw'`: the call rejects with `LOCK_TIMEOUT`. `'skip'`: it resolves with undefined, or the stream ends empty; an
 * event of type `skipped` tells. A function: its result is the call's, and what it throws the call's error. The method
 * itself does not run.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- the arguments of whatever method is decorated; LockedMethod checks them
export type OnBusy = 'throw' | 'skip' | ((busy: BusyLock, ...args: any[]) => unknown);

/** Durations are milliseconds. What is left out comes from the module's `defaults`. */
export interface LockedOptions<Busy extends OnBusy = OnBusy> extends Omit<LockOptions, 'signal'> {
  /** Default `'throw'`. With `'skip'`, `waitMs` is 0 unless given here. */
  readonly onBusy?: Busy;
  /**
   * What the method returns. Needed only where nothing else says so: for an Observable when no type metadata is emitted
   * or the method has no return type, for an async iterable when the method is not an `async *` generator.
   */
  readonly returns?: ResultKind;
}

/** The part that concerns the lock itself. */
export function lockOptionsOf({ onBusy, returns: _, ...options }: LockedOptions): LockOptions {
  return onBusy === 'skip' ? { waitMs: 0, ...options } : options;
}
