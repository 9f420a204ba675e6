import type { DataSource } from 'typeorm';

import type { TestDatabase } from './databases.js';

/** One thing that the database accepted under a key: a write to a row, or a raise of the fence. */
export interface Accepted {
  readonly seq: number;
  readonly token: number;
}

/** What becomes part of the history, and how its key and token are called there. */
const SOURCES = [
  { table: 'invoice', event: 'UPDATE', key: `concat('invoice:', NEW."id")`, token: 'NEW."lockToken"' },
  ...['INSERT', 'UPDATE'].flatMap((event) => [
    { table: 'invoice_line', event, key: `concat('invoice:', NEW."invoiceId")`, token: 'NEW."lockToken"' },
    { table: 'lock_fence', event, key: 'NEW."key"', token: 'NEW."token"' },
  ]),
] as const;

/** Has the database itself write down what it accepts, in the order in which it does, and only if it commits. */
export async function recordHistory(plain: DataSource, dialect: TestDatabase['dialect']): Promise<void> {
  const sequence = {
    sqlite: 'INTEGER PRIMARY KEY AUTOINCREMENT',
    postgres: 'serial PRIMARY KEY',
    mysql: 'int AUTO_INCREMENT PRIMARY KEY',
  };
  const column = dialect === 'mysql' ? 'varchar(191)' : 'text';
  await plain.query(
    `CREATE TABLE history (seq ${sequence[dialect]}, lock_key ${column} NOT NULL, token bigint NOT NULL)`,
  );
  for (const [i, { table, event, key, token }] of SOURCES.entries()) {
    const insert = `INSERT INTO history (lock_key, token) VALUES (${key}, ${token})`;
    for (const statement of triggerStatements(
      dialect,
      `history_${i}`,
      `AFTER ${event} ON ${table}`,
      insert,
    )) {
      await plain.query(statement);
    }
  }
}

function triggerStatements(
  dialect: TestDatabase['dialect'],
  name: string,
  when: string,
  insert: string,
): readonly string[] {
  const trigger = `CREATE TRIGGER ${name} ${when} FOR EACH ROW`;
  if (dialect === 'sqlite') {
    return [`${trigger} BEGIN ${insert.replace(/concat\((.*?), (.*?)\)/, '$1 || $2')}; END`];
  }
  if (dialect === 'mysql') return [`${trigger} ${insert.replaceAll('"', '`')}`];
  return [
    `CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${insert}; RETURN NULL; END $$`,
    `${trigger} EXECUTE FUNCTION ${name}()`,
  ];
}

/** What was accepted under `key` after `last`. */
export async function acceptedSince(
  last: Accepted,
  plain: DataSource,
  key: string,
): Promise<readonly Accepted[]> {
  const rows = await plain.query<{ seq: unknown; token: unknown }[]>(
    `SELECT seq, token FROM history WHERE lock_key = '${key}' AND seq > ${last.seq} ORDER BY seq`,
  );
  return rows.map(({ seq, token }) => ({ seq: Number(seq), token: Number(token) }));
}

/** What was accepted although something with a higher token had been accepted before. */
export function stepsBack(history: readonly Accepted[], highestBefore: number): readonly Accepted[] {
  return history.filter(({ token }, i) => token < highest(history.slice(0, i), highestBefore));
}

export function highest(history: readonly Accepted[], highestBefore: number): number {
  return Math.max(highestBefore, ...history.map(({ token }) => token));
}
