import type { DataSource } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { createOnce, openOwnConnection } from '../connection/index.js';
import { type Dialect, dialectOf } from '../sql/index.js';
import { mysqlRecords } from './mysql-records.js';
import { postgresRecords } from './postgres-records.js';
import type { RecordStatements } from './record-statements.js';
import { sqliteRecords } from './sqlite-records.js';

export const DEFAULT_IDEMPOTENCY_TABLE = 'idempotency_record';

/** Leaves room for the name of its index. */
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]{0,49}$/;

const DIALECTS: Readonly<Record<Dialect, (table: string, name: string) => RecordStatements>> = {
  postgres: postgresRecords,
  sqlite: sqliteRecords,
  mysql: mysqlRecords,
};

/**
 * Creates the table that keeps the records of `typeormIdempotencyStore()`, in the schema of the DataSource, for example in a
 * migration; harmless when it is there already. Runs on a connection of its own, outside any transaction. Nothing creates it
 * unasked.
 *
 * @throws {LockConfigInvalidError} the database or the name of the table is not usable
 */
export async function createIdempotencyTable(
  dataSource: DataSource,
  table = DEFAULT_IDEMPOTENCY_TABLE,
): Promise<void> {
  const create = idempotencyTableSql(dataSource, table);
  const own = await openOwnConnection(dataSource, { poolSize: 1 });
  try {
    for (const statement of create) await createOnce(own, statement);
  } finally {
    await own.destroy();
  }
}

/** What {@link createIdempotencyTable} runs. */
export function idempotencyTableSql(
  dataSource: DataSource,
  table = DEFAULT_IDEMPOTENCY_TABLE,
): readonly string[] {
  return recordStatements(dataSource, table).create;
}

/** @throws {LockConfigInvalidError} the database or the name of the table is not usable */
export function recordStatements(dataSource: DataSource, table: string): RecordStatements {
  if (!IDENTIFIER.test(table)) {
    throw new LockConfigInvalidError(
      `The idempotency table is called ${JSON.stringify(table)}; write a name of at most 50 letters, digits and ` +
        'underscores, e.g. "idempotency_record". Its schema is that of the DataSource.',
    );
  }
  const dialect = dialectOf(dataSource);
  const statements = DIALECTS[dialect];
  const { schema } = dataSource.options as { readonly schema?: string };
  const qualifies = dialect === 'postgres' && schema !== undefined;
  return statements(qualifies ? `"${schema.replaceAll('"', '""')}"."${table}"` : `"${table}"`, table);
}
