import type { QueryRunner } from 'typeorm';

import { OutsideTransactionError, type Lease } from '../../core/index.js';
import type { DataSourceFence } from './data-source-fence.js';
import type { FencedEntity } from '../entities/index.js';
import type { Proof } from './proof.js';
import type { Transactions } from './transactions.js';

/** What has to be right before a write under a hold goes through a query runner. */
export class Admission {
  readonly #raising = new WeakMap<QueryRunner, Promise<void>>();

  constructor(
    private readonly fence: DataSourceFence,
    private readonly transactions: Transactions,
  ) {}

  /**
   * Undefined when nothing is left to do, so that TypeORM builds its statement in the same turn.
   *
   * @throws {OutsideTransactionError} the hold has a transaction open, and this is not it
   * @throws {FencedOutError} a newer owner is there
   */
  admit(entity: FencedEntity, proofs: readonly Proof[], runner: QueryRunner): Promise<void> | undefined {
    const leases = proofs.flatMap(({ lease }) => lease ?? []);
    for (const lease of leases) this.#requireInside(entity, lease, runner);
    const late = leases.filter((lease) => !this.fence.isRaised(lease));
    return late.length > 0 ? this.#raise(late, runner) : undefined;
  }

  #requireInside(entity: FencedEntity, lease: Lease, runner: QueryRunner): void {
    const transaction = this.transactions.current();
    if (!transaction || transaction.runner === runner || !transaction.leases.has(lease)) return;
    const { key, store } = lease;
    throw new OutsideTransactionError(
      `A write to ${entity.name} under "${key}" went beside the transaction that is open here. It was not sent; use the ` +
        'manager that the transaction gives to its work.',
      { key, store },
    );
  }

  /** One after the other: TypeORM calls the hooks of many rows at once, and a connection takes one statement at a time. */
  #raise(leases: readonly Lease[], runner: QueryRunner): Promise<void> {
    const before = this.#raising.get(runner) ?? Promise.resolve();
    const raised = before.then(async () => {
      for (const lease of leases) if (!this.fence.isRaised(lease)) await this.fence.raiseLate(runner, lease);
    });
    this.#raising.set(
      runner,
      raised.catch(() => undefined),
    );
    return raised;
  }
}
