import { createRequire } from 'node:module';
import { connect, type Socket } from 'node:net';

import type { DataSourceOptions } from 'typeorm';

import { Invoice } from '../billing/invoice.entity.js';
import type { DatabaseSettings, ServerDatabase } from './storage-settings.js';

/** libsql has the interface of better-sqlite3, and comes compiled. */
const sqliteDriver: unknown = createRequire(import.meta.url)('libsql');

const CONNECTIONS = 4;
const CONNECT_TIMEOUT_MS = 3_000;
/** A server that has stopped answering must not hold a worker for ever. */
const QUERY_TIMEOUT_MS = 5_000;

interface SqliteHandle {
  pragma(text: string): unknown;
}

/** The database of the invoices. */
export function invoiceDatabase(settings: DatabaseSettings): DataSourceOptions {
  return { ...database(settings), entities: [Invoice] };
}

/** A database that holds no entities: leases only. */
export function lockDatabase(settings: DatabaseSettings): DataSourceOptions {
  return { ...database(settings), entities: [] };
}

/** The server itself, where the schema of the run is made and dropped. */
export function bareServer(settings: ServerDatabase): DataSourceOptions {
  return settings.kind === 'mysql' ? mysql(settings.url) : postgres(settings);
}

function database(settings: DatabaseSettings): DataSourceOptions {
  switch (settings.kind) {
    case 'postgres':
      return postgres(settings);
    case 'mysql':
      return mysql(urlOfSchema(settings));
    case 'sqlite':
      return sqlite(settings.file);
  }
}

function sqlite(file: string): DataSourceOptions {
  return {
    type: 'better-sqlite3',
    driver: sqliteDriver,
    database: file,
    enableWAL: true,
    // The demo kills processes, not the machine: what a process has written is there without waiting for the disk.
    prepareDatabase: (handle: SqliteHandle) => void handle.pragma('synchronous = NORMAL'),
  };
}

function postgres({ url, schema }: ServerDatabase): DataSourceOptions {
  return {
    type: 'postgres',
    url,
    schema,
    applicationName: 'demo-billing',
    poolSize: CONNECTIONS,
    connectTimeoutMS: CONNECT_TIMEOUT_MS,
    extra: { query_timeout: QUERY_TIMEOUT_MS },
  };
}

function mysql(url: string): DataSourceOptions {
  return {
    type: 'mysql',
    url,
    poolSize: CONNECTIONS,
    connectTimeout: CONNECT_TIMEOUT_MS,
    extra: { stream: openSocket },
  };
}

/** What MySQL calls a database is the path of the url. */
function urlOfSchema({ url, schema }: ServerDatabase): string {
  return Object.assign(new URL(url), { pathname: `/${schema}` }).href;
}

/** mysql2 has no limit for queries: a connection on which nothing is heard for so long ends. */
function openSocket({ config: { port, host } }: { readonly config: { port: number; host: string } }): Socket {
  const socket = connect(port, host).setNoDelay(true);
  return socket.setTimeout(QUERY_TIMEOUT_MS, () => socket.destroy());
}
