import type { QueryRunner } from 'typeorm';

import type { Dialect } from '../sql/index.js';
import { runStatements } from './run-statements.js';
import { quoteName, tableName, tableOf } from './table-name.js';

export interface TokenColumnOptions {
  /** As the database names it. Default `lockToken`, which is what TypeORM makes of a property of that name. */
  readonly column?: string;
}

const DEFAULT_COLUMN = 'lockToken';

/**
 * Adds the column of `@LockTokenColumn()` to a table that is there already: `bigint NOT NULL DEFAULT 0`.
 *
 * One statement that writes no row: 0 means "never written under a lock". It still waits for the transactions that use the
 * table, and those that come later wait behind it; on a busy table, limit that (`SET lock_timeout`) and try again.
 *
 * @param table e.g. `invoice` or `billing.invoice`
 * @throws {LockConfigInvalidError} the database is not supported, or a name is not usable
 */
export function addLockTokenColumn(
  runner: QueryRunner,
  table: string,
  options: TokenColumnOptions = {},
): Promise<void> {
  return runStatements(runner, (dialect) => addLockTokenColumnSql(dialect, tableOf(runner, table), options));
}

/** Takes the column away again, and with it all tokens: from then on no guard works on this table. */
export function dropLockTokenColumn(
  runner: QueryRunner,
  table: string,
  options: TokenColumnOptions = {},
): Promise<void> {
  return runStatements(runner, (dialect) => dropLockTokenColumnSql(dialect, tableOf(runner, table), options));
}

/** What {@link addLockTokenColumn} runs. */
export function addLockTokenColumnSql(
  dialect: Dialect,
  table: string,
  { column = DEFAULT_COLUMN }: TokenColumnOptions = {},
): string[] {
  const name = quoteName(dialect, column);
  return [`ALTER TABLE ${tableName(dialect, table).quoted} ADD COLUMN ${name} bigint NOT NULL DEFAULT 0`];
}

/** What {@link dropLockTokenColumn} runs. */
export function dropLockTokenColumnSql(
  dialect: Dialect,
  table: string,
  { column = DEFAULT_COLUMN }: TokenColumnOptions = {},
): string[] {
  return [`ALTER TABLE ${tableName(dialect, table).quoted} DROP COLUMN ${quoteName(dialect, column)}`];
}
