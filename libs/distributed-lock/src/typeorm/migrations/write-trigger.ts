import type { QueryRunner } from 'typeorm';

import { type Dialect, dialectOf } from '../sql/index.js';
import { runStatements } from './run-statements.js';
import { dataSourceOf, tableName, tableOf } from './table-name.js';
import { WRITE_TRIGGERS } from './write-trigger-sql.js';

export interface WriteTriggerOptions {
  /** Columns of the primary key. Only SQLite needs them, to notice `INSERT OR REPLACE` over a row that is there. */
  readonly primaryKey?: readonly string[];
}

/**
 * Lets the database itself refuse what does not come through the guards: every UPDATE and DELETE of the table (on PostgreSQL
 * also TRUNCATE) by other programs, by hand, by an application whose DataSource is not guarded. It does not matter which
 * token the row carries or the statement names. The error of the database says so in a sentence, and the statement
 * changes nothing.
 *
 * What a guarded DataSource sends passes, `unfenced()` included, and costs no statement more. Inserts pass. Install it
 * when all applications that write the table are guarded. Installing it twice is harmless.
 *
 * It stops accidents, not intent: whoever may write the table can also imitate the mark or drop the trigger; take
 * privileges away for that. See docs/migrations.md for what the trigger of each database cannot see.
 *
 * @param table e.g. `invoice` or `billing.invoice`
 * @throws {LockConfigInvalidError} the database is not supported, or a name is not usable
 */
export async function installWriteTrigger(runner: QueryRunner, table: string): Promise<void> {
  const primaryKey = await primaryKeyOf(runner, table);
  await runStatements(runner, (dialect) =>
    installWriteTriggerSql(dialect, tableOf(runner, table), { primaryKey }),
  );
}

/** Takes away what {@link installWriteTrigger} made; harmless when it is not there. */
export function removeWriteTrigger(runner: QueryRunner, table: string): Promise<void> {
  return runStatements(runner, (dialect) => removeWriteTriggerSql(dialect, tableOf(runner, table)));
}

/** What {@link installWriteTrigger} runs. */
export function installWriteTriggerSql(
  dialect: Dialect,
  table: string,
  { primaryKey = [] }: WriteTriggerOptions = {},
): string[] {
  return [...WRITE_TRIGGERS[dialect](tableName(dialect, table), primaryKey).install];
}

/** What {@link removeWriteTrigger} runs. */
export function removeWriteTriggerSql(dialect: Dialect, table: string): string[] {
  return [...WRITE_TRIGGERS[dialect](tableName(dialect, table), []).remove];
}

async function primaryKeyOf(runner: QueryRunner, table: string): Promise<string[]> {
  if (dialectOf(dataSourceOf(runner)) !== 'sqlite') return [];
  const { name } = tableName('sqlite', table);
  const rows = (await runner.query('SELECT name FROM pragma_table_info(?) WHERE pk > 0', [name])) as {
    readonly name: string;
  }[];
  return rows.map((column) => column.name);
}
