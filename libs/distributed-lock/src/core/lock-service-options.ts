import type { Clock } from './clock.js';
import type { KeyScopeOptions } from './key-scope.js';
import type { Lease } from './lease.js';
import type { LockEventHub } from './lock-events.js';
import type { LockDefaults } from './lock-options.js';
import type { LockStore } from './lock-store.js';

export interface LockServiceOptions extends KeyScopeOptions {
  /** By name; `default` is used when no name is given. */
  readonly stores: Readonly<Record<string, LockStore>>;
  readonly defaults?: LockDefaults;
  readonly clock?: Clock;
  readonly events?: LockEventHub;
}

/** Work to be done under a lock. */
export type LockedWork<T> = (lease: Lease) => Promise<T> | T;
