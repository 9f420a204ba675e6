import { DataSource, type DataSourceOptions, type QueryRunner } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { dialectOf, retryTransient } from '../sql/index.js';
import { ownMysql, prepareMysqlSession } from './own-mysql.js';
import { ownPostgres } from './own-postgres.js';
import { ownSqlite, type SqliteOptions } from './own-sqlite.js';

export interface OwnConnectionOptions {
  /** The most connections to a server; SQLite always has one. */
  readonly poolSize: number;
}

/** Dropping a connection costs more than waiting for a server that is only slow. */
const SHORTEST_PATIENCE_MS = 1_000;
const OPEN_RETRY_MS = 2_000;

/**
 * Opens a small DataSource of our own to the same database, with the same credentials, schema and driver.
 *
 * Statements on it commit by themselves, never join a transaction of the application, and never take a connection out
 * of its pool. With replication it always goes to the primary. Whoever opens it closes it with `destroy()`.
 *
 * @throws {LockConfigInvalidError} the database type is not supported, or lives in memory, where a second connection
 *   would see another database
 */
export async function openOwnConnection(
  dataSource: DataSource,
  { poolSize }: OwnConnectionOptions,
): Promise<DataSource> {
  requireSharedDatabase(dataSource);
  return retryTransient(OPEN_RETRY_MS, () => new DataSource(ownOptions(dataSource, poolSize)).initialize());
}

/**
 * Checks, without connecting, that a second connection sees the same database.
 *
 * @throws {LockConfigInvalidError} see {@link openOwnConnection}
 */
export function requireSharedDatabase(dataSource: DataSource): void {
  if (dialectOf(dataSource) !== 'sqlite') return;
  const { database } = dataSource.options as SqliteOptions;
  if (database !== '' && !/:memory:|mode=memory/.test(database)) return;
  throw new LockConfigInvalidError(
    `A DataSource on the in-memory database ${JSON.stringify(database)} cannot keep locks or fences: they need a ` +
      'connection of their own, which would see another database. Use a file.',
  );
}

/**
 * Runs `work` on one connection of `own`. Nothing is begun once `timeoutMs` have passed, and a connection that has not
 * answered by then (after a second at the least) is dropped, so that a half-open one is not handed to the next caller;
 * `work` then rejects, and what its statement came to is unknown.
 */
export async function inOwnSession<T>(
  own: DataSource,
  timeoutMs: number,
  work: (session: QueryRunner) => Promise<T>,
): Promise<T> {
  const endsAtMs = performance.now() + timeoutMs;
  const session = own.createQueryRunner('master');
  const connection = (await session.connect()) as Connection | undefined;
  const timer = setTimeout(() => drop(connection), Math.max(timeoutMs, SHORTEST_PATIENCE_MS));
  try {
    if (performance.now() > endsAtMs)
      throw new Error(`no connection to the database within ${Math.round(timeoutMs)} ms`);
    if (connection && dialectOf(own) === 'mysql') await prepareMysqlSession(session, connection);
    return await work(session);
  } finally {
    clearTimeout(timer);
    await session.release();
  }
}

/** What the drivers of servers give; SQLite has nobody to wait for. */
interface Connection {
  destroy?(): void;
  end?(done: () => void): void;
}

function drop(connection: Connection | undefined): void {
  if (connection?.destroy) return connection.destroy();
  connection?.end?.(() => undefined);
}

function ownOptions({ options }: DataSource, poolSize: number): DataSourceOptions {
  switch (options.type) {
    case 'postgres':
      return ownPostgres(options, poolSize);
    case 'mysql':
    case 'mariadb':
      return ownMysql(options, poolSize);
    default:
      return ownSqlite(options as SqliteOptions);
  }
}
