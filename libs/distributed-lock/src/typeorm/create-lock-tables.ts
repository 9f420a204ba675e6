import type { DataSource, QueryRunner } from 'typeorm';

import { createFenceTable, FENCE_TABLE, fenceTableSql } from './fence/index.js';
import {
  createIdempotencyTable,
  DEFAULT_IDEMPOTENCY_TABLE,
  idempotencyTableSql,
} from './idempotency-table/index.js';
import { createLeaseTable, DEFAULT_LEASE_TABLE, leaseTableSql } from './lease-table/index.js';
import { dataSourceOf, runStatements, tableName } from './migrations/index.js';
import type { Dialect } from './sql/index.js';

export interface LockTablesOptions {
  /** Also the table of `typeormIdempotencyStore()`, `idempotency_record`. Default false. */
  readonly idempotency?: boolean;
}

export interface LockTablesSqlOptions extends LockTablesOptions {
  /** Of PostgreSQL. Default: wherever the session looks first. */
  readonly schema?: string;
}

/**
 * Creates the tables of this package: `lock_lease`, which `typeormStore()` keeps leases in, and `lock_fence`, which the guards
 * need wherever an entity is fenced. Harmless when they are there already. Nothing creates them unasked.
 *
 * Given the query runner of a migration it works in its transaction; given a DataSource, on a connection of its own. The
 * schema is the one of the DataSource.
 *
 * @throws {LockConfigInvalidError} the database is not supported or in memory, or the name of its schema is not usable
 */
export async function createLockTables(
  target: DataSource | QueryRunner,
  options: LockTablesOptions = {},
): Promise<void> {
  if (isRunner(target)) {
    return runStatements(target, (dialect) =>
      createLockTablesSql(dialect, { ...options, schema: schemaOf(target) }),
    );
  }
  await createLeaseTable(target);
  await createFenceTable(target);
  if (options.idempotency) await createIdempotencyTable(target);
}

/** The inverse, for `down()`. All leases, tokens and records are gone: only when no application uses them any more. */
export function dropLockTables(runner: QueryRunner, options: LockTablesOptions = {}): Promise<void> {
  return runStatements(runner, (dialect) =>
    dropLockTablesSql(dialect, { ...options, schema: schemaOf(runner) }),
  );
}

/** What {@link createLockTables} runs. @param dialect `mysql` stands for MariaDB as well */
export function createLockTablesSql(
  dialect: Dialect,
  { schema, idempotency = false }: LockTablesSqlOptions = {},
): string[] {
  const home = homeOf(dialect, schema);
  return [...leaseTableSql(home), ...fenceTableSql(home), ...(idempotency ? idempotencyTableSql(home) : [])];
}

/** What {@link dropLockTables} runs. */
export function dropLockTablesSql(
  dialect: Dialect,
  { schema, idempotency = false }: LockTablesSqlOptions = {},
): string[] {
  const tables = [DEFAULT_LEASE_TABLE, FENCE_TABLE, ...(idempotency ? [DEFAULT_IDEMPOTENCY_TABLE] : [])];
  return tables
    .map((table) => tableName(dialect, schema === undefined ? table : `${schema}.${table}`).quoted)
    .map((table) => `DROP TABLE IF EXISTS ${table}`);
}

const TYPES: Readonly<Record<Dialect, string>> = {
  postgres: 'postgres',
  sqlite: 'better-sqlite3',
  mysql: 'mariadb',
};

/** All that the statements want to know of a DataSource. */
function homeOf(dialect: Dialect, schema: string | undefined): DataSource {
  return { options: { type: TYPES[dialect], schema } } as unknown as DataSource;
}

function schemaOf(runner: QueryRunner): string | undefined {
  return (dataSourceOf(runner).options as { readonly schema?: string }).schema;
}

function isRunner(target: DataSource | QueryRunner): target is QueryRunner {
  return !('createQueryRunner' in target);
}
