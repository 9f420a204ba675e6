import type { DataSource, QueryRunner } from 'typeorm';

import type { Dialect } from '../sql/index.js';

/** Ends the text of every statement by which a guarded DataSource may write a fenced table, on PostgreSQL. */
export const STATEMENT_MARK = '/*guarded by nestjs-distributed-lock*/';
/** The name by which a connection of a guarded DataSource can be told, where a trigger cannot see the statement. */
export const CONNECTION_MARK = 'nestjs_distributed_lock';

interface SqliteHandle {
  exec(sql: string): unknown;
}

interface KnownWritesOptions {
  readonly dialect: Dialect;
  /** Names of the fenced tables. */
  readonly tables: readonly string[];
  /** True inside `unfenced()`, where a function or procedure of the database may do the writing. */
  readonly isUnfenced: () => boolean;
}

type Send = (sql: string) => Promise<unknown>;

/** Sends a statement that may write a fenced table so that the trigger knows it. */
type SendKnown = (runner: QueryRunner, sql: string, send: Send) => Promise<unknown>;

/**
 * Lets the trigger of `installWriteTrigger()` tell the statements of this DataSource from all others. Harmless where there
 * is no such trigger, so that it can be installed and removed while applications run.
 *
 * Has to come before the guards: what they refuse must not get here.
 */
export function makeWritesKnown(dataSource: DataSource, options: KnownWritesOptions): void {
  if (options.tables.length === 0) return;
  if (options.dialect === 'sqlite') return attachMark(dataSource);
  const mayWrite = writesOf(options);
  const sendKnown = options.dialect === 'postgres' ? markStatement : markConnection();
  const { driver } = dataSource;
  const create = driver.createQueryRunner.bind(driver);
  driver.createQueryRunner = (mode) => follow(create(mode), mayWrite, sendKnown);
}

/** Triggers of SQLite see neither the statement nor variables, but they see the databases of the connection. */
function attachMark(dataSource: DataSource): void {
  const { databaseConnection } = dataSource.driver as unknown as { databaseConnection: SqliteHandle };
  databaseConnection.exec(`ATTACH ':memory:' AS ${CONNECTION_MARK}`);
}

/** On a line of its own, in case the statement ends in a comment. */
const markStatement: SendKnown = (_runner, sql, send) => send(`${sql}\n${STATEMENT_MARK}`);

/** Triggers of MySQL and MariaDB see variables of the connection, which a pool keeps: one statement in its life. */
function markConnection(): SendKnown {
  const marked = new WeakSet<object>();
  return async (runner, sql, send) => {
    const connection = (await runner.connect()) as MySqlConnection;
    if (!marked.has(connection)) await queryOn(connection, `SET @${CONNECTION_MARK} = 1`);
    marked.add(connection);
    return send(sql);
  };
}

interface MySqlConnection {
  query(sql: string, done: (error: Error | null) => void): unknown;
}

function queryOn(connection: MySqlConnection, sql: string): Promise<void> {
  return new Promise((resolve, reject) => {
    connection.query(sql, (error) => (error ? reject(error) : resolve()));
  });
}

function follow<R extends QueryRunner>(runner: R, mayWrite: (sql: string) => boolean, known: SendKnown): R {
  const query = runner.query.bind(runner) as (sql: string, ...rest: unknown[]) => Promise<unknown>;
  const stream = runner.stream.bind(runner);
  const sendQuery = (sql: string, ...rest: unknown[]): Promise<unknown> =>
    mayWrite(sql) ? known(runner, sql, (text) => query(text, ...rest)) : query(sql, ...rest);
  Object.assign(runner, { query: sendQuery });
  runner.stream = (sql, ...rest) => {
    const open = (text: string): ReturnType<R['stream']> => stream(text, ...rest) as ReturnType<R['stream']>;
    return (mayWrite(sql) ? known(runner, sql, open) : open(sql)) as ReturnType<R['stream']>;
  };
  return runner;
}

const TRANSACTION_CONTROL =
  /^\s*(?:begin|start|commit|end|rollback|abort|savepoint|release|set|show|reset)\b/i;

function writesOf({ tables, isUnfenced }: KnownWritesOptions): (sql: string) => boolean {
  const mention = new RegExp(tables.map(escapePattern).join('|'), 'i');
  return (sql) => mention.test(sql) || (isUnfenced() && !TRANSACTION_CONTROL.test(sql));
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
