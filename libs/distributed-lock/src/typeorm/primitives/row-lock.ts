import {
  FindOperator,
  type EntityManager,
  type FindOptionsWhere,
  type ObjectLiteral,
  type Repository,
} from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import {
  busyError,
  isBusy,
  requireRowLocks,
  timeoutOf,
  transactionWithin,
  withLockLimit,
  type TimeoutOption,
} from './bounded.js';
import { dialectOf } from '../sql/index.js';
import { dataSourceOf, repositoryOf, type DataSourceChoice, type RowsOf } from './rows.js';

export interface RowLockOptions extends TimeoutOption, DataSourceChoice {
  /** What to do when another transaction keeps the row: throw `LOCK_TIMEOUT` (default), or resolve with undefined. */
  readonly onBusy?: 'throw' | 'skip';
  /**
   * On PostgreSQL: `no-key-update` (default) lets others insert rows that refer to this one; `update` does not, and is for
   * work that deletes the row or changes its key. MySQL and MariaDB know only the latter.
   */
  readonly mode?: 'no-key-update' | 'update';
}

type RowWork<E, T> = (row: E, manager: EntityManager) => Promise<T> | T;

const INSTEAD =
  'a transaction of a guarded DataSource is the only writer of the file from its beginning; for a step from one status to ' +
  'the next use transition(), for longer work @Locked';

/**
 * Runs `work` while the database keeps everybody else from changing the row; it is read after the lock was given, so it
 * shows what the last one wrote. The lock ends with the transaction: `work` gets its manager, and has to use it.
 *
 * For changes to one row that begin with a look at it and take milliseconds. It needs no lease and no token: who does not
 * commit has written nothing. It does not keep out those who read, is not for calls to other services (a connection of the
 * pool is taken all the while, and nothing outside the database is undone), and does not survive the connection. Writes to
 * fenced entities still need the lock of the row.
 *
 * @param id a primary key, as `findOneById` takes it; an object when it has several columns
 * @throws {LockTimeoutError} the row or the pool was busy for `timeoutMs`; `work` did not run
 * @throws {EntityNotFoundError} there is no such row; `work` did not run
 * @throws {LockConfigInvalidError} the database is SQLite, the id is not complete, or it is not clear which DataSource is
 *   meant; `work` did not run
 */
export async function withRowLock<E extends ObjectLiteral, T>(
  rows: RowsOf<E>,
  id: unknown,
  work: RowWork<E, T>,
  options: RowLockOptions & { readonly onBusy: 'skip' },
): Promise<T | undefined>;
export async function withRowLock<E extends ObjectLiteral, T>(
  rows: RowsOf<E>,
  id: unknown,
  work: RowWork<E, T>,
  options?: RowLockOptions,
): Promise<T>;
export async function withRowLock<E extends ObjectLiteral, T>(
  rows: RowsOf<E>,
  id: unknown,
  work: RowWork<E, T>,
  options: RowLockOptions = {},
): Promise<T | undefined> {
  const { manager, target } = repositoryOf(rows, options, 'withRowLock()');
  const timeoutMs = timeoutOf(options);
  requireRowLocks(manager, 'withRowLock()', INSTEAD);
  let entered = false;
  try {
    return await transactionWithin(manager, timeoutMs, async (inner, remainingMs) => {
      const row = await lockedRow(inner.getRepository(target), id, { ...options, timeoutMs: remainingMs });
      entered = true;
      return work(row, inner);
    });
  } catch (error) {
    if (entered || !isBusy(error)) throw error;
    if (options.onBusy === 'skip') return undefined;
    throw busyError('withRowLock()', timeoutMs, error);
  }
}

function lockedRow<E extends ObjectLiteral>(
  repository: Repository<E>,
  id: unknown,
  { timeoutMs, mode = 'no-key-update' }: RowLockOptions & { readonly timeoutMs: number },
): Promise<E> {
  const weak = mode === 'no-key-update' && dialectOf(dataSourceOf(repository.manager)) === 'postgres';
  return withLockLimit(repository.manager, timeoutMs, () =>
    repository.findOneOrFail({
      where: idOf(repository, id),
      loadEagerRelations: false, // rows of an outer join cannot be locked
      lock: {
        mode: weak ? 'for_no_key_update' : 'pessimistic_write',
        ...(timeoutMs === 0 && { onLocked: 'nowait' as const }),
      },
    }),
  );
}

/**
 * The columns of the primary key, as a condition for one row: TypeORM takes a part of them for a condition as well, and no
 * part for all rows.
 *
 * @throws {LockConfigInvalidError} a part is missing, or is not one value
 */
export function idOf<E extends ObjectLiteral>({ metadata }: Repository<E>, id: unknown): FindOptionsWhere<E> {
  const { name, primaryColumns } = metadata;
  const where = id == null ? {} : metadata.ensureEntityIdMap(id);
  const missing = primaryColumns.find((column) => !isOneValue(column.getEntityValue(where)));
  if (!missing) return metadata.getEntityIdMap(where) as FindOptionsWhere<E>;
  throw new LockConfigInvalidError(
    `The id given for ${name} does not name one row: it has no single value for <${missing.propertyPath}>. Nothing was done; ` +
      'give the primary key, and an object with all parts when it has several.',
  );
}

function isOneValue(value: unknown): boolean {
  return value != null && !(value instanceof FindOperator);
}
