import type { Dialect } from '../sql/index.js';
import { CONNECTION_MARK, STATEMENT_MARK } from './known-writes.js';
import { derivedName, quoteName, type TableName } from './table-name.js';

/** Words for the trigger of one table, in the SQL of one database. */
export interface WriteTriggerSql {
  readonly install: readonly string[];
  readonly remove: readonly string[];
}

/** @param primaryKey columns; without them SQLite does not notice `INSERT OR REPLACE` */
export type WriteTriggerBuilder = (table: TableName, primaryKey: readonly string[]) => WriteTriggerSql;

/** Of PostgreSQL: a class that nobody else uses, so that applications can tell it from other refusals. */
const REFUSED = 'LOCK1';
/** Of MySQL, in characters. */
const LONGEST_MESSAGE = 128;

function sentence(verb: string, { name }: TableName): string {
  return `Refused, nothing was changed: ${verb} of table ${name} did not come through the guards of its application`;
}

/** The mark is in the text of the statement, which a trigger of PostgreSQL can read. */
const postgres: WriteTriggerBuilder = (table) => {
  const fn = table.beside(derivedName('lock_guard', table.name));
  const unmarked = `WHEN (strpos(coalesce(current_query(), ''), '${STATEMENT_MARK}') = 0) EXECUTE FUNCTION ${fn}()`;
  const remove = [
    `DROP TRIGGER IF EXISTS "lock_guard_rows" ON ${table.quoted}`,
    `DROP TRIGGER IF EXISTS "lock_guard_truncate" ON ${table.quoted}`,
  ];
  return {
    install: [
      `CREATE OR REPLACE FUNCTION ${fn}() RETURNS trigger LANGUAGE plpgsql AS $lock$
BEGIN
  RAISE EXCEPTION '${sentence('%', table).replace(table.name, '%')}', TG_OP, TG_TABLE_NAME
    USING ERRCODE = '${REFUSED}', HINT = 'Write through a guarded DataSource under the lock of the row, or inside unfenced(); '
      'for a repair by hand, remove the trigger first: see docs/migrations.md of nestjs-distributed-lock.';
END $lock$`,
      ...remove,
      `CREATE TRIGGER "lock_guard_rows" BEFORE UPDATE OR DELETE ON ${table.quoted} FOR EACH ROW ${unmarked}`,
      `CREATE TRIGGER "lock_guard_truncate" BEFORE TRUNCATE ON ${table.quoted} FOR EACH STATEMENT ${unmarked}`,
    ],
    remove: [...remove, `DROP FUNCTION IF EXISTS ${fn}()`],
  };
};

/** The mark is a database of the name, attached to the connection. */
const sqlite: WriteTriggerBuilder = (table, primaryKey) => {
  const trigger = (verb: string): string =>
    table.beside(derivedName(`lock_guard_${verb.toLowerCase()}`, table.name));
  const outside = `NOT EXISTS (SELECT 1 FROM pragma_database_list WHERE name = '${CONNECTION_MARK}')`;
  const create = (verb: string, event: string, when: string): string =>
    `CREATE TRIGGER ${trigger(verb)} BEFORE ${event} ON ${quoteName('sqlite', table.name)} WHEN ${outside}${when} ` +
    `BEGIN SELECT RAISE(ABORT, '${sentence(verb, table)}'); END`;
  const isThere = primaryKey
    .map((column) => quoteName('sqlite', column))
    .map((column) => `${column} = NEW.${column}`)
    .join(' AND ');
  const replaced = ` AND EXISTS (SELECT 1 FROM ${quoteName('sqlite', table.name)} WHERE ${isThere})`;
  const remove = ['UPDATE', 'DELETE', 'REPLACE'].map((verb) => `DROP TRIGGER IF EXISTS ${trigger(verb)}`);
  return {
    install: [
      ...remove,
      create('UPDATE', 'UPDATE', ''),
      create('DELETE', 'DELETE', ''),
      ...(primaryKey.length > 0 ? [create('REPLACE', 'INSERT', replaced)] : []),
    ],
    remove,
  };
};

/** The mark is a variable of the connection. A trigger of MySQL and MariaDB watches one kind of statement. */
const mysql: WriteTriggerBuilder = (table) => {
  const trigger = (verb: string): string =>
    table.beside(derivedName(`lock_guard_${verb.toLowerCase()}`, table.name));
  const create = (verb: string): string =>
    `CREATE TRIGGER ${trigger(verb)} BEFORE ${verb} ON ${table.quoted} FOR EACH ROW IF @${CONNECTION_MARK} IS NULL THEN ` +
    `SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '${sentence(verb, table).slice(0, LONGEST_MESSAGE)}'; END IF`;
  const verbs = ['UPDATE', 'DELETE'];
  const remove = verbs.map((verb) => `DROP TRIGGER IF EXISTS ${trigger(verb)}`);
  return { install: [...remove, ...verbs.map(create)], remove };
};

export const WRITE_TRIGGERS: Readonly<Record<Dialect, WriteTriggerBuilder>> = {
  postgres,
  sqlite,
  mysql,
};
