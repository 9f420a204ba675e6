import type { IdempotencyStore } from '../../idempotency/index.js';

/** What a conformance case needs of the store under test. One harness serves all cases, one after the other. */
export interface IdempotencyStoreHarness {
  /** A store on a connection of its own, as another process would have. Cases close what they connect. */
  connect(): Promise<IdempotencyStore>;
  /** Whether expired records go away without a purge. */
  readonly purgesItself: boolean;
}

/**
 * One promise of the port of idempotency stores. Give `run` to any test runner:
 * `for (const { name, run } of idempotencyStoreConformance) it(name, () => run(harness))`.
 */
export interface IdempotencyConformanceCase {
  readonly name: string;
  /** Ids of the public failure reports that the case retells. */
  readonly cases?: readonly string[];
  /** @throws {AssertionError} the store breaks the promise */
  run(harness: IdempotencyStoreHarness): Promise<void>;
}
