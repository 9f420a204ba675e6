import { createRequire } from 'node:module';

import type { DataSourceOptions } from 'typeorm';

import { Invoice } from '../billing/invoice.entity.js';
import type { DatabaseSettings } from './storage-settings.js';

/** libsql has the interface of better-sqlite3, and comes compiled. */
const sqliteDriver: unknown = createRequire(import.meta.url)('libsql');

/**
 * A synchronous driver that waits for another process's write blocks the event loop, and with it the renewal of leases.
 * Rather fail soon: the message comes again.
 */
const SQLITE_BUSY_TIMEOUT_MS = 200;
const POSTGRES_CONNECTIONS = 4;
const CONNECT_TIMEOUT_MS = 3_000;

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
    const applicationName = 'demo-billing';
    const pool = { poolSize: POSTGRES_CONNECTIONS, connectTimeoutMS: CONNECT_TIMEOUT_MS };
    return { type: 'postgres', url, schema, applicationName, ...pool };
  }
  return {
    type: 'better-sqlite3',
    driver: sqliteDriver,
    database: settings.file,
    enableWAL: true,
    timeout: SQLITE_BUSY_TIMEOUT_MS,
    // The demo kills processes, not the machine: what a process has written is there without waiting for the disk.
    prepareDatabase: (handle: SqliteHandle) => void handle.pragma('synchronous = NORMAL'),
  };
}
