import type { LockStore } from 'nestjs-distributed-lock';
import { lockStoreConformance, type LockStoreHarness } from 'nestjs-distributed-lock/testing';

import { itRunsBeside } from './beside.js';

const LIMIT_MS = 300_000;
/** Cases keep leases of twice to four times that, which a busy machine would lose if they were as short as stores permit. */
const LEAST_TTL_MS = 750;

/**
 * One test per case, under the case's own name and the ids of the reports it retells. `leastTtlMs` is for stores that keep
 * leases beyond their ttl, and longer ones for too long.
 */
export function itConforms(harness: () => LockStoreHarness, leastTtlMs = LEAST_TTL_MS): void {
  const longestFirst = [...lockStoreConformance].sort(
    (one, next) => Number(isLong(next)) - Number(isLong(one)),
  );
  const cases = longestFirst.map(({ name, cases: ids = [], run }) => ({
    name: ids.length === 0 ? name : `${name} (${ids.join(', ')})`,
    run: () => run(withLongLeases(harness(), leastTtlMs)),
  }));
  itRunsBeside(cases, { limitMs: LIMIT_MS, isAlone });
}

/** What ends all connections, and what two connections to ZooKeeper do slowly because they take turns. */
function isAlone(name: string): boolean {
  return /restart|cross on two connections/.test(name);
}

function isLong({ name }: { readonly name: string }): boolean {
  return name.includes('three ttls');
}

function withLongLeases(harness: LockStoreHarness, leastTtlMs: number): LockStoreHarness {
  const connect = async (): Promise<LockStore> => {
    const store = await harness.connect();
    const minTtlMs = Math.max(store.minTtlMs, leastTtlMs);
    const get = (_: LockStore, name: keyof LockStore): unknown => {
      if (name === 'minTtlMs') return minTtlMs;
      const own: unknown = store[name];
      return typeof own === 'function' ? (own.bind(store) as unknown) : own;
    };
    return new Proxy(store, { get });
  };
  return { ...harness, connect };
}
