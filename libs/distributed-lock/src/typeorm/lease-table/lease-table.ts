import type { DataSource } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { createOnce, openOwnConnection } from '../connection/index.js';
import { dialectOf } from '../sql/index.js';
import type { LeaseStatements } from './lease-statements.js';
import { mysqlStatements } from './mysql-statements.js';
import { postgresStatements } from './postgres-statements.js';
import { sqliteStatements } from './sqlite-statements.js';

export const DEFAULT_LEASE_TABLE = 'lock_lease';

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/**
 * Creates the table that keeps the leases of `typeormStore()`, in the schema of the DataSource; harmless when it is there
 * already. Runs on a connection of its own, outside any transaction.
 *
 * @throws {LockConfigInvalidError} the database or the name of the table is not usable
 */
export async function createLeaseTable(dataSource: DataSource, table = DEFAULT_LEASE_TABLE): Promise<void> {
  const create = leaseTableSql(dataSource, table);
  const own = await openOwnConnection(dataSource, { poolSize: 1 });
  try {
    for (const statement of create) await createOnce(own, statement);
  } finally {
    await own.destroy();
  }
}

/** What {@link createLeaseTable} runs. */
export function leaseTableSql(dataSource: DataSource, table = DEFAULT_LEASE_TABLE): readonly string[] {
  return leaseStatements(dataSource, table).create;
}

/** @throws {LockConfigInvalidError} the database or the name of the table is not usable */
export function leaseStatements(dataSource: DataSource, table: string): LeaseStatements {
  if (!IDENTIFIER.test(table)) {
    throw new LockConfigInvalidError(
      `The lease table is called ${JSON.stringify(table)}; write a name of letters, digits and underscores, ` +
        'e.g. "lock_lease". Its schema is that of the DataSource.',
    );
  }
  const dialect = dialectOf(dataSource);
  if (dialect === 'sqlite') return sqliteStatements(`"${table}"`);
  if (dialect === 'mysql') return mysqlStatements(table);
  return postgresStatements(postgresTable(dataSource, table));
}

/** As SQL, in the schema of the DataSource. */
export function postgresTable(dataSource: DataSource, table: string): string {
  const { schema } = dataSource.options as { readonly schema?: string };
  return schema === undefined ? `"${table}"` : `"${schema.replaceAll('"', '""')}"."${table}"`;
}
