import type { EntityManager, FindOptionsOrder, FindOptionsWhere, ObjectLiteral, Repository } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import {
  requireRowLocks,
  timeoutOf,
  transactionWithin,
  withLockLimit,
  type TimeoutOption,
} from './bounded.js';
import { repositoryOf, type DataSourceChoice, type RowsOf } from './rows.js';

export interface BatchChoice<E extends ObjectLiteral> extends TimeoutOption, DataSourceChoice {
  /** Which rows are to be done, by columns of the table itself. */
  readonly where: FindOptionsWhere<E>;
  /** Which of them first. Default: as the database finds them. */
  readonly order?: FindOptionsOrder<E>;
  /** The most rows, at least 1. */
  readonly limit: number;
}

const INSTEAD = 'leaseBatch() works there too';

/**
 * Runs `work` with rows that nobody else gets at the same time: those that others have claimed are passed over, not waited
 * for. They are kept until the transaction ends, and `work`, which gets its manager, has to leave them so that `where` no
 * longer finds them; when it fails, they are free again at once. Resolves with undefined, without `work`, when there is
 * nothing to do.
 *
 * For queues in a table whose items take milliseconds and are done by writing to this database. For longer work, or work
 * that others can see, see `leaseBatch()`. It does not promise order among several workers, nor that an item is tried once
 * only: a crash gives it to the next. Writes to fenced entities still need the locks of the rows.
 *
 * @throws {LockTimeoutError} no connection was free within `timeoutMs`; `work` did not run
 * @throws {LockConfigInvalidError} the database is SQLite, `limit` is no number of rows, or it is not clear which
 *   DataSource is meant
 */
export async function claimBatch<E extends ObjectLiteral, T>(
  rows: RowsOf<E>,
  options: BatchChoice<E>,
  work: (rows: E[], manager: EntityManager) => Promise<T> | T,
): Promise<T | undefined> {
  const { manager, target } = repositoryOf(rows, options, 'claimBatch()');
  requireLimit(options.limit);
  requireRowLocks(manager, 'claimBatch()', INSTEAD);
  return transactionWithin(manager, timeoutOf(options), async (inner, remainingMs) => {
    const claimed = await withLockLimit(inner, remainingMs, () =>
      freeRows(inner.getRepository(target), options),
    );
    return claimed.length > 0 ? work(claimed, inner) : undefined;
  });
}

/** Locks rows that are not locked by others. */
export function freeRows<E extends ObjectLiteral>(
  repository: Repository<E>,
  { where, order, limit }: BatchChoice<E>,
): Promise<E[]> {
  return repository.find({
    where,
    order,
    take: limit,
    loadEagerRelations: false, // rows of an outer join cannot be locked
    lock: { mode: 'pessimistic_write', onLocked: 'skip_locked' },
  });
}

/** @throws {LockConfigInvalidError} it is no number of rows */
export function requireLimit(limit: unknown): void {
  if (Number.isSafeInteger(limit) && (limit as number) >= 1) return;
  throw new LockConfigInvalidError(
    `limit is ${String(limit)}; write a number of rows, at least 1. Nothing was claimed.`,
  );
}
