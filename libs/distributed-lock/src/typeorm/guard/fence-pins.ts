import type { QueryRunner } from 'typeorm';

import { FencedOutError, type Lease } from '../../core/index.js';
import type { FenceRows } from '../fence/index.js';
import { driverCode } from '../sql/index.js';
import type { DataSourceFence } from './data-source-fence.js';
import type { Transactions } from './transactions.js';

/** PostgreSQL takes no more statements, because one had failed, and will answer COMMIT with ROLLBACK. */
const ABORTED = '25P02';

/** Keeps fence rows as they are until a transaction has ended, so that no successor begins before. */
export class FencePins {
  constructor(
    private readonly fence: DataSourceFence,
    private readonly rows: FenceRows,
    private readonly transactions: Transactions,
  ) {}

  /** @throws {FencedOutError} a newer owner is there; the transaction that `runner` has open will not commit */
  async pin(runner: QueryRunner, lease: Lease): Promise<void> {
    if (!this.fence.isRaised(lease)) await this.fence.raiseLate(runner, lease);
    if (await this.rows.pin(runner, lease)) return this.transactions.pinned(runner, lease);
    const refusal = new FencedOutError(
      `A transaction under "${lease.key}" (token ${lease.token}) is void: a newer owner has the lock. It will not commit; ` +
        'stop here and read the data again.',
      { key: lease.key, store: lease.store },
    );
    this.transactions.doom(runner, refusal);
    throw refusal;
  }

  /**
   * What a transaction wrote under a hold need not have carried a guard: rows of entities that are not fenced.
   *
   * @throws {FencedOutError} see {@link pin}
   */
  async pinBeforeCommit(runner: QueryRunner): Promise<void> {
    for (const lease of this.transactions.unpinned(runner)) {
      if (this.fence.concerns(lease.key)) await this.pin(runner, lease).catch(unlessAborted);
    }
  }
}

function unlessAborted(error: unknown): void {
  if (driverCode(error) !== ABORTED) throw error;
}
