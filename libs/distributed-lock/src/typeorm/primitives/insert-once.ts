import type { DeepPartial, FindOneOptions, FindOptionsWhere, ObjectLiteral, Repository } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { dialectOf, driverCode } from '../sql/index.js';
import { boundedWrite, isInTransaction, timeoutOf, type TimeoutOption } from './bounded.js';
import { dataSourceOf, repositoryOf, type DataSourceChoice, type RowsOf } from './rows.js';

export interface InsertOnceOptions<E> extends TimeoutOption, DataSourceChoice {
  /** The properties whose unique key decides. Default: the primary key. */
  readonly key?: readonly (keyof E & string)[];
}

export interface InsertedOnce<E> {
  /** True when this call inserted the row. */
  readonly inserted: boolean;
  /** The row that is there now: this call's, or the one of whoever was first. */
  readonly row: E;
}

type Attempt<E extends ObjectLiteral> = { readonly timeoutMs: number; readonly where: FindOptionsWhere<E> };

/** PostgreSQL; MySQL and MariaDB; SQLite. */
const DUPLICATE = /^(?:23505|ER_DUP_ENTRY|SQLITE_CONSTRAINT_(?:UNIQUE|PRIMARYKEY|ROWID))$/;
/** Where a plain read inside a transaction may show less than a write meets. */
const OLD_SNAPSHOTS: ReadonlySet<string> = new Set(['mysql']);
/** The row that was in the way may have been removed before it could be read; a third time would be another fault. */
const ATTEMPTS = 2;

/**
 * Inserts a row unless one with the same key is there. Of any number of callers at the same time exactly one inserts, and all
 * get its row.
 *
 * The unique key of the table decides, so it has to exist. For "once per order", "once per message": no lock does it better.
 * It does not wait for the winner's further work, and a row whose transaction rolls back was never there. Errors of other
 * keys and constraints are thrown as they are. A row that was removed softly counts as there. On a fenced entity, insert
 * under the lock of the row.
 *
 * @throws {LockTimeoutError} somebody has inserted the same key and not committed for `timeoutMs`; nothing was written
 * @throws {LockConfigInvalidError} `values` lack a part of the key, or it is not clear which DataSource is meant
 */
export async function insertOnce<E extends ObjectLiteral>(
  rows: RowsOf<E>,
  values: DeepPartial<E>,
  options: InsertOnceOptions<E> = {},
): Promise<InsertedOnce<E>> {
  const repository = repositoryOf(rows, options, 'insertOnce()');
  const attempt = { timeoutMs: timeoutOf(options), where: keyOf(repository, values, options.key) };
  let duplicate: unknown;
  for (let tries = 0; tries < ATTEMPTS; tries += 1) {
    try {
      return { inserted: true, row: await insert(repository, values, attempt) };
    } catch (error) {
      if (!DUPLICATE.test(driverCode(error))) throw error;
      duplicate = error;
    }
    const row = await whatIsThere(repository, attempt);
    if (row) return { inserted: false, row };
  }

  throw duplicate;
}

function insert<E extends ObjectLiteral>(
  repository: Repository<E>,
  values: DeepPartial<E>,
  { timeoutMs }: Attempt<E>,
): Promise<E> {
  return boundedWrite(repository, { timeoutMs, caller: 'insertOnce()' }, async (inner) => {
    const row = inner.create(values);
    await inner.insert(row);
    return row;
  });
}

/** From the primary, as a write would find it; a snapshot of MySQL or MariaDB may be older than what was in the way. */
function whatIsThere<E extends ObjectLiteral>(
  repository: Repository<E>,
  { timeoutMs, where }: Attempt<E>,
): Promise<E | null> {
  const { manager } = repository;
  const oldSnapshot = isInTransaction(manager) && OLD_SNAPSHOTS.has(dialectOf(dataSourceOf(manager)));
  const find: FindOneOptions<E> = {
    where,
    withDeleted: true,
    ...(oldSnapshot && { lock: { mode: 'pessimistic_read' }, loadEagerRelations: false }),
  };
  return boundedWrite(repository, { timeoutMs, caller: 'insertOnce()' }, (inner) => inner.findOne(find));
}

/** @throws {LockConfigInvalidError} a part is missing */
function keyOf<E extends ObjectLiteral>(
  { metadata }: Repository<E>,
  values: DeepPartial<E>,
  key: readonly string[] | undefined,
): FindOptionsWhere<E> {
  if (key?.length === 0) refuse('its key has no properties');
  const columns = key
    ? key.map(
        (property) =>
          metadata.findColumnWithPropertyName(property) ?? refuse(`it has no column "${property}"`),
      )
    : metadata.primaryColumns;
  const parts = columns.map((column) => {
    if (column.getEntityValue(values) == null) refuse(`the values have no "${column.propertyPath}"`);
    return column.getEntityValueMap(values) as object;
  });
  return Object.assign({}, ...parts) as FindOptionsWhere<E>;

  function refuse(why: string): never {
    throw new LockConfigInvalidError(
      `insertOnce() cannot tell a row of ${metadata.name} that is there already: ${why}. Nothing was written; give all parts ` +
        "of a unique key, and name it if it is not the primary one: { key: ['orderId'] }.",
    );
  }
}
