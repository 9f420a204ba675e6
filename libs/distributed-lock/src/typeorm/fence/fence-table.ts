import type { DataSource } from 'typeorm';

import { createOnce, openOwnConnection } from '../connection/index.js';
import { dialectOf, quoteIdentifier } from '../sql/index.js';

const FENCE_TABLE = 'lock_fence';

/** The fence table in SQL: in the schema of the DataSource where it names one, else wherever the session looks first. */
export function fenceTable(dataSource: DataSource): string {
  const { schema } = dataSource.options as { readonly schema?: string };
  const table = quoteIdentifier(FENCE_TABLE);
  return schema === undefined ? table : `${quoteIdentifier(schema)}.${table}`;
}

/**
 * Creates the table that keeps the highest token of each key, one row per key; harmless when it is there already. Runs on
 * a connection of its own, outside any transaction.
 *
 * @throws {LockConfigInvalidError} the database or the name of its schema is not usable
 */
export async function createFenceTable(dataSource: DataSource): Promise<void> {
  // Rows change often and no index covers what changes: free space in the page keeps such updates cheap.
  const storage = dialectOf(dataSource) === 'postgres' ? ' WITH (fillfactor = 70)' : '';
  const statement =
    `CREATE TABLE IF NOT EXISTS ${fenceTable(dataSource)} ("key" text NOT NULL PRIMARY KEY, ` +
    `"store_id" text NOT NULL, "token" bigint NOT NULL, "owner_id" text NOT NULL)${storage}`;
  const own = await openOwnConnection(dataSource, { poolSize: 1 });
  try {
    await createOnce(own, statement);
  } finally {
    await own.destroy();
  }
}
