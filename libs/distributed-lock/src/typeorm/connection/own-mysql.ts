import { connect } from 'node:net';

import { BARE, CONNECT_TIMEOUT_MS, mortal, type OptionsOf, QUERY_TIMEOUT_MS } from './own-options.js';

export type MysqlOptions = OptionsOf<'mysql' | 'mariadb'>;

/** In seconds, the least that MySQL takes. Whoever waits longer asks again. */
const LOCK_WAIT_SECONDS = 1;

/** What statements of ours rely on, whatever the server or the application prefers. */
const SESSION_SETTINGS =
  `SET SESSION autocommit = 1, innodb_lock_wait_timeout = ${LOCK_WAIT_SECONDS}, ` +
  "sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'";

const prepared = new WeakSet<object>();

interface Queryable {
  query(sql: string): Promise<unknown>;
}

/** Gives a connection of ours its settings, once. */
export async function prepareMysqlSession(session: Queryable, connection: object): Promise<void> {
  if (prepared.has(connection)) return;
  await session.query(SESSION_SETTINGS);
  prepared.add(connection);
}

export function ownMysql(options: MysqlOptions, poolSize: number): MysqlOptions {
  const { replication, url, host, port, username, password, database, socketPath, ...rest } = options;
  const direct = { url, host, port, username, password, database, socketPath };
  const primary = replication ? { ...replication.master } : direct;
  const extra = (options.extra ?? {}) as { readonly connectTimeout?: number; readonly stream?: unknown };
  const connectTimeoutMs = extra.connectTimeout || options.connectTimeout || CONNECT_TIMEOUT_MS;
  return {
    ...rest,
    ...primary,
    ...BARE,
    debug: false,
    poolSize,
    extra: {
      ...extra,
      connectionLimit: poolSize,
      waitForConnections: true,
      queueLimit: 0,
      connectTimeout: Math.min(connectTimeoutMs, CONNECT_TIMEOUT_MS),
      stream: extra.stream ?? openSocket,
    },
  };
}

interface Address {
  readonly config: { readonly socketPath?: string; readonly port: number; readonly host: string };
}

/** As mysql2 opens it, and closed when nothing has been heard of the server for longer than any statement of ours takes. */
function openSocket({ config: { socketPath, port, host } }: Address) {
  const socket = socketPath === undefined ? connect(port, host) : connect(socketPath);
  socket.setNoDelay(true).setKeepAlive(true);
  socket.setTimeout(QUERY_TIMEOUT_MS, () => socket.destroy());
  return mortal(socket);
}
