import type { DataSource } from 'typeorm';

import { createOnce, openOwnConnection } from '../connection/index.js';
import { type Dialect, dialectOf, quoteIdentifier } from '../sql/index.js';

export const FENCE_TABLE = 'lock_fence';

/** The fence table in SQL: in the schema of the DataSource where it names one, else wherever the session looks first. */
export function fenceTable(dataSource: DataSource): string {
  const { schema } = dataSource.options as { readonly schema?: string };
  const dialect = dialectOf(dataSource);
  const table = quoteIdentifier(dialect, FENCE_TABLE);
  return schema === undefined ? table : `${quoteIdentifier(dialect, schema)}.${table}`;
}

const standardColumns = (table: string): string =>
  `${table} ("key" text NOT NULL PRIMARY KEY, "store_id" text NOT NULL, "token" bigint NOT NULL, "owner_id" text NOT NULL)`;

const COLUMNS: Readonly<Record<Dialect, (table: string) => string>> = {
  // Rows change often and no index covers what changes: free space in the page keeps such updates cheap.
  postgres: (table) => `${standardColumns(table)} WITH (fillfactor = 70)`,
  sqlite: standardColumns,
  // Bytes, since every collation finds some different texts equal. 512 are the most that a stored key has.
  mysql: (table) =>
    `${table} (\`key\` varbinary(512) NOT NULL PRIMARY KEY, \`store_id\` varbinary(255) NOT NULL, ` +
    '`token` bigint NOT NULL, `owner_id` varbinary(64) NOT NULL) ENGINE = InnoDB',
};

/**
 * Creates the table that keeps the highest token of each key, one row per key; harmless when it is there already. Runs on
 * a connection of its own, outside any transaction.
 *
 * @throws {LockConfigInvalidError} the database or the name of its schema is not usable
 */
export async function createFenceTable(dataSource: DataSource): Promise<void> {
  const own = await openOwnConnection(dataSource, { poolSize: 1 });
  try {
    for (const statement of fenceTableSql(dataSource)) await createOnce(own, statement);
  } finally {
    await own.destroy();
  }
}

/** What {@link createFenceTable} runs. */
export function fenceTableSql(dataSource: DataSource): readonly string[] {
  return [`CREATE TABLE IF NOT EXISTS ${COLUMNS[dialectOf(dataSource)](fenceTable(dataSource))}`];
}
