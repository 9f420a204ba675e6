import type { IdempotencyStore } from 'nestjs-distributed-lock';

/** What a contract case needs of the store under test. One harness serves all cases, one after the other. */
export interface IdempotencyHarness {
  /** A store on a connection of its own, as another process would have. Cases close what they connect. */
  connect(): Promise<IdempotencyStore>;
  /** Whether expired records go away without a purge. */
  readonly purgesItself: boolean;
}

/** One promise of the idempotency port. */
export interface ContractCase {
  readonly name: string;
  /** Ids of the public failure reports that the case retells. */
  readonly cases?: readonly string[];
  /** @throws {AssertionError} the store breaks the promise */
  run(harness: IdempotencyHarness): Promise<void>;
}
