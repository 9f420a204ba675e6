import { Socket } from 'node:net';

import { DataSource, type DataSourceOptions, type QueryRunner } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { dialectOf, retryTransient } from '../sql/index.js';
import { settleStatements, type SqliteHandle } from './settled-statements.js';

type OptionsOf<Type extends DataSourceOptions['type']> = Extract<DataSourceOptions, { readonly type: Type }>;
type BaseOptions = Pick<PostgresOptions, keyof PostgresOptions & keyof SqliteOptions>;
type PostgresOptions = OptionsOf<'postgres'>;
type SqliteOptions = OptionsOf<'better-sqlite3'>;

export interface OwnConnectionOptions {
  /** The most connections to PostgreSQL; SQLite always has one. */
  readonly poolSize: number;
}

/** Also the longest wait for a free connection; the longest time-out of the core is the same. */
const CONNECT_TIMEOUT_MS = 5_000;
/** Backstop for queries outside {@link inOwnSession}. */
const QUERY_TIMEOUT_MS = 10_000;
/** Dropping a connection costs more than waiting for a server that is only slow. */
const SHORTEST_PATIENCE_MS = 1_000;
/** A server that is gone never answers the goodbye; without a limit its sockets would keep the process alive. */
const GOODBYE_MS = 500;
const OPEN_RETRY_MS = 2_000;

/** The user's own content stays out: this connection sees tables, not entities, and changes no schema. */
const BARE: Partial<Omit<BaseOptions, 'type' | 'poolSize'>> = {
  entities: [],
  subscribers: [],
  migrations: [],
  synchronize: false,
  migrationsRun: false,
  dropSchema: false,
  logging: false,
  logger: undefined,
  cache: false,
  maxQueryExecutionTime: undefined,
};

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
  const client = (await session.connect()) as { end?: (done: () => void) => void } | undefined;
  const drop = (): void => client?.end?.(() => undefined); // only PostgreSQL waits for anybody
  const timer = setTimeout(drop, Math.max(timeoutMs, SHORTEST_PATIENCE_MS));
  try {
    if (performance.now() > endsAtMs)
      throw new Error(`no connection to the database within ${Math.round(timeoutMs)} ms`);
    return await work(session);
  } finally {
    clearTimeout(timer);
    await session.release();
  }
}

function ownOptions({ options }: DataSource, poolSize: number): DataSourceOptions {
  return options.type === 'postgres' ? ownPostgres(options, poolSize) : ownSqlite(options as SqliteOptions);
}

function ownPostgres(options: PostgresOptions, poolSize: number): PostgresOptions {
  const { replication, url, host, port, username, password, database, ssl, applicationName, ...rest } =
    options;
  const direct = { url, host, port, username, password, database, ssl, applicationName };
  const primary = replication ? { ...replication.master } : direct;
  const extra = (options.extra ?? {}) as PoolExtra;
  return {
    ...withoutSideEffects(rest),
    ...primary,
    ...BARE,
    poolSize,
    extra: { ...extra, ...poolLimits(options, extra, poolSize) },
    // A broken idle connection is replaced at its next use: nothing to report and nobody to tell.
    poolErrorHandler: () => undefined,
  };
}

/** What would change the application's process or schema again: time zone, type parsers, extensions, notices. */
function withoutSideEffects(options: Partial<PostgresOptions>): { readonly type: 'postgres' } {
  const { useUTC, parseInt8, extensions, logNotifications, ...rest } = options;
  void [useUTC, parseInt8, extensions, logNotifications];
  return { ...rest, type: 'postgres', installExtensions: false } as { type: 'postgres' };
}

interface PoolExtra {
  readonly query_timeout?: number;
  readonly connectionTimeoutMillis?: number;
  readonly stream?: Socket | (() => Socket);
}

function poolLimits(options: PostgresOptions, extra: PoolExtra, poolSize: number): object {
  const connectTimeoutMs = extra.connectionTimeoutMillis || options.connectTimeoutMS || CONNECT_TIMEOUT_MS;
  return {
    max: poolSize,
    min: 0,
    keepAlive: true,
    connectionTimeoutMillis: Math.min(connectTimeoutMs, CONNECT_TIMEOUT_MS),
    query_timeout: Math.min(extra.query_timeout || QUERY_TIMEOUT_MS, QUERY_TIMEOUT_MS),
    stream: mortalSocket(extra.stream),
  };
}

/** Sockets that are torn down when the server does not answer the goodbye. */
function mortalSocket(stream: PoolExtra['stream']): PoolExtra['stream'] {
  if (stream && typeof stream !== 'function') return stream;
  return () => {
    const socket = stream ? stream() : new Socket();
    socket.once('finish', () => setTimeout(() => socket.destroy(), GOODBYE_MS).unref());
    return socket;
  };
}

function ownSqlite(options: SqliteOptions): SqliteOptions {
  return {
    ...options,
    ...BARE,
    verbose: undefined,
    timeout: 0,
    prepareDatabase: async (handle: SqliteHandle) => {
      await options.prepareDatabase?.(handle);
      // Waiting inside a synchronous driver would block the event loop, and with it every renewal of this process.
      handle.pragma('busy_timeout = 0');
      // A commit that a power cut takes back would give the same token out twice.
      handle.pragma('synchronous = FULL');
      settleStatements(handle);
    },
  };
}
