import type { DataSource, EntityManager } from 'typeorm';

import { LockConfigInvalidError } from '../core/index.js';
import { guardedDataSources, guardOf } from './guard/index.js';

/**
 * The entity manager of the transaction that this call chain is inside of: that of `@Idempotent({ transactional: true })`,
 * of `fencedTransaction()`, or of any other on a guarded DataSource. What is written through it, or through
 * `manager.withRepository(repository)`, is a part of that transaction; what an injected repository writes is not.
 *
 * @throws {LockConfigInvalidError} no transaction is open here, or several, and `dataSource` does not say which is meant
 */
export function transactionManager({ dataSource }: { readonly dataSource?: DataSource } = {}): EntityManager {
  const candidates = dataSource ? [dataSource] : guardedDataSources();
  const open = candidates.flatMap((candidate) => guardOf(candidate)?.transactions.current() ?? []);
  const [transaction, another] = open;
  if (transaction && !another) return transaction.runner.manager;
  throw new LockConfigInvalidError(
    another
      ? 'transactionManager(): transactions of several DataSources are open here. Nothing was done; write { dataSource }.'
      : 'transactionManager(): no transaction of a guarded DataSource is open in this call chain. Nothing was done; call it ' +
          'inside @Idempotent({ transactional: true }) or fencedTransaction(), and await what is done there.',
  );
}
