import type { LockSettings } from './storage-settings.js';

/** How long leases last in a run, and what follows from it. */
export interface LeaseTimes {
  /** Of locks and records. */
  readonly leaseMs: number;
  /** After so long without a renewal a lock is free, however slowly its store ends leases. */
  readonly lapsedAfterMs: number;
  /** How long to wait for a lock: long enough to see that of a dead owner run out. */
  readonly waitMs: number;
}

/** By how much stores end a lease later than its holder believes. */
const LATE_MS: Readonly<Record<LockSettings['kind'], (leaseMs: number) => number>> = {
  sqlite: () => 0,
  postgres: () => 0,
  mysql: () => 0,
  session: () => 0,
  redis: () => 0,
  redlock: () => 0,
  etcd: () => 1_500, // counts in whole seconds, and looks every half a second
  consul: (leaseMs) => leaseMs, // keeps sessions for twice their ttl
  zookeeper: (leaseMs) => leaseMs / 2, // looks once a tick, which is half of the shortest lease
};

/** @param wishMs is made longer where the store keeps no lease as short as that: `shortestMs` */
export function leaseTimes(kind: LockSettings['kind'], wishMs: number, shortestMs: number): LeaseTimes {
  const leaseMs = Math.max(wishMs, shortestMs);
  const lapsedAfterMs = leaseMs + LATE_MS[kind](leaseMs);
  return { leaseMs, lapsedAfterMs, waitMs: 2 * lapsedAfterMs };
}
