import type { Clock } from './clock.js';
import type { LeaseTimes } from './lease-life.js';
import type { LossReason } from './lease-state.js';
import type { LockEventHub, LockSubject } from './lock-events.js';
import type { LockStore } from './lock-store.js';
import type { Orphans } from './orphans.js';
import type { Renewals } from './renewals.js';

/** What was asked for and granted. */
export interface LeaseTerms extends LockSubject, LeaseTimes {
  /** The key with namespace and scope: what the store and the fence know it by. */
  readonly qualifiedKey: string;
  readonly ownerId: string;
  readonly token: number;
  readonly minHoldMs: number;
}

/** What every lease of one store shares. */
export interface LeaseSurroundings {
  readonly clock: Clock;
  readonly lockStore: LockStore;
  readonly renewals: Renewals;
  readonly orphans: Orphans;
  readonly events: LockEventHub;
}

/** The hold that a lease belongs to: it knows what runs under the lease. */
export interface LeaseUser {
  run<T>(work: () => Promise<T> | T): Promise<T>;
  leaseLost(reason: LossReason): void;
  releaseSettled(): void;
}
