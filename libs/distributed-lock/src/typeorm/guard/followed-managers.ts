import type { DataSource, EntityManager } from 'typeorm';

import { followOperations } from './operations.js';
import { override } from './override.js';
import type { Transactions } from './transactions.js';
import type { Turns } from '../connection/index.js';
import type { UnchangedSaves } from './unchanged-saves.js';

type Transact = (...args: unknown[]) => Promise<unknown>;
type Work = (manager: EntityManager) => unknown;

/** Makes what goes through the entity managers of a DataSource known: operations with their options, and transactions. */
export function followManagers(
  dataSource: DataSource,
  transactions: Transactions,
  unchanged: UnchangedSaves,
  turns: Turns,
): void {
  const follow = (manager: EntityManager): EntityManager => {
    followOperations(manager, turns, {
      fencedOut: (refusal) => {
        if (manager.queryRunner) transactions.doom(manager.queryRunner, refusal);
      },
      saved: (...saved) => unchanged.check(manager, ...saved),
    });
    followTransactions(manager, transactions, turns);
    return manager;
  };
  const create = dataSource.createEntityManager.bind(dataSource);
  override(dataSource, 'createEntityManager', (runner) => follow(create(runner)));
  follow(dataSource.manager);
}

/** Marks the call chain of the work, so that a lock which is asked for inside can be refused. */
function followTransactions(manager: EntityManager, transactions: Transactions, turns: Turns): void {
  const transaction = manager.transaction.bind(manager) as Transact;
  const marked =
    (work: Work): Work =>
    (inner) =>
      inner.queryRunner ? transactions.runInside(inner.queryRunner, () => work(inner)) : work(inner);
  const followed: Transact = (...args) => {
    const work = args.pop();
    args.push(typeof work === 'function' ? marked(work as Work) : work);
    return turns.take(() => transactions.runApart(() => transaction(...args)));
  };
  override(manager, 'transaction', followed as EntityManager['transaction']);
}
