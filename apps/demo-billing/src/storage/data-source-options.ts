import { createRequire } from 'node:module';

import type { DataSourceOptions } from 'typeorm';

import { Invoice } from '../billing/invoice.entity.js';
import type { DatabaseSettings } from './storage-settings.js';

/** libsql has the interface of better-sqlite3, and comes compiled. */
const sqliteDriver: unknown = createRequire(import.meta.url)('libsql');

const POSTGRES_CONNECTIONS = 4;
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

function database(settings: DatabaseSettings): DataSourceOptions {
  if (settings.kind === 'postgres') {
    const { url, schema } = settings;
    const pool = { poolSize: POSTGRES_CONNECTIONS, connectTimeoutMS: CONNECT_TIMEOUT_MS };
    return {
      type: 'postgres',
      url,
      schema,
      applicationName: 'demo-billing',
      ...pool,
      extra: { query_timeout: QUERY_TIMEOUT_MS },
    };
  }
  return {
    type: 'better-sqlite3',
    driver: sqliteDriver,
    database: settings.file,
    enableWAL: true,
    // The demo kills processes, not the machine: what a process has written is there without waiting for the disk.
    prepareDatabase: (handle: SqliteHandle) => void handle.pragma('synchronous = NORMAL'),
  };
}
