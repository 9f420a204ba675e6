import type { LockStore } from '../../core/index.js';

/** What a conformance case needs of the store under test. One harness serves all cases, one after the other. */
export interface LockStoreHarness {
  /** A store on a connection of its own, as another process would have. Cases close what they connect. */
  connect(): Promise<LockStore>;
  /** Ends the grant of `key` behind its holder's back: deletes it, or takes it over. */
  evict(key: string): Promise<void>;
  /** The place that keeps the leases goes away and comes back, with whatever it still remembers then. */
  restart(): Promise<void>;
  /** What every new token exceeds: a little less than the present microsecond where tokens come from a clock, else 0. */
  tokenFloor(): number;
  /** False for a store that answers busy without saying for how long. */
  readonly tellsRemainingTime: boolean;
  /** How long after its ttl the store may end a grant, because it looks only now and then; at most 500 ms. Default 0. */
  readonly endsLateByMs?: number;
  /** Whether `key` is taken, read past the code of the store; absent where nothing but that code can tell. */
  peek?(key: string): Promise<'taken' | 'free'>;
}

/**
 * One promise of the store port. Give `run` to any test runner:
 * `for (const { name, run } of lockStoreConformance) it(name, () => run(harness))`.
 */
export interface ConformanceCase {
  readonly name: string;
  /** Ids of the public failure reports that the case retells. */
  readonly cases?: readonly string[];
  /** @throws {AssertionError} the store breaks the promise */
  run(harness: LockStoreHarness): Promise<void>;
}
