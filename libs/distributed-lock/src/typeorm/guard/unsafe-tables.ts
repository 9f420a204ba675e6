import type { DataSource } from 'typeorm';

import type { FencedEntity } from '../entities/index.js';
import type { Dialect } from '../sql/index.js';

type Rows = readonly Readonly<Record<string, unknown>>[];

/** What makes guards void in a table or session; null when there is nothing. Tables that are not there yet are passed over. */
export async function unsafeTable(
  dataSource: DataSource,
  dialect: Dialect,
  entities: readonly FencedEntity[],
): Promise<string | null> {
  return (
    (dialect === 'mysql' ? await unsafeOnMySql(dataSource, entities) : null) ??
    (await nullableToken(dataSource, entities))
  );
}

/** A guard refuses by a NULL that the column does not take. One that takes it would lose its token to a stale write. */
async function nullableToken(
  dataSource: DataSource,
  entities: readonly FencedEntity[],
): Promise<string | null> {
  const runner = dataSource.createQueryRunner();
  try {
    for (const { metadata, tokenColumn } of entities) {
      const table = await runner.getTable(metadata.tablePath);
      const { databaseName } = tokenColumn;
      if (table?.findColumnByName(databaseName)?.isNullable)
        return (
          `column ${databaseName} of table ${metadata.tableName} takes NULL, so it cannot refuse anything; make it ` +
          'bigint NOT NULL DEFAULT 0, as addLockTokenColumn() does'
        );
    }
    return null;
  } finally {
    await runner.release();
  }
}

async function unsafeOnMySql(
  dataSource: DataSource,
  entities: readonly FencedEntity[],
): Promise<string | null> {
  const [session] = await dataSource.query<Rows>('SELECT @@SESSION.sql_mode AS sql_mode');
  if (!String(session?.['sql_mode']).includes('STRICT_'))
    return (
      `the sql_mode of its sessions is '${String(session?.['sql_mode'])}', under which it corrects values that it has to ` +
      'refuse; add STRICT_TRANS_TABLES'
    );
  for (const { metadata } of entities) {
    const [found] = await dataSource.query<Rows>(ENGINE, [metadata.database ?? null, metadata.tableName]);
    if (found && found['transactional'] !== 'YES')
      return (
        `table ${metadata.tableName} has the engine ${String(found['engine'])}, which has no transactions and writes a part of ` +
        `the rows of a statement that is refused; ALTER TABLE ${metadata.tableName} ENGINE = InnoDB`
      );
  }
  return null;
}

const ENGINE =
  'SELECT t.ENGINE AS engine, e.TRANSACTIONS AS transactional FROM information_schema.TABLES t ' +
  'LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE ' +
  "WHERE t.TABLE_SCHEMA = COALESCE(?, DATABASE()) AND t.TABLE_NAME = ? AND t.TABLE_TYPE LIKE '%TABLE'";
