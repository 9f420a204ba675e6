import { join } from 'node:path';

import type { RedisPlace, StoreChoice } from '../command-line/store-choice.js';

/** `schema` is the run's own; MySQL calls it a database. */
export interface ServerDatabase {
  readonly kind: 'postgres' | 'mysql';
  readonly url: string;
  readonly schema: string;
}

export type DatabaseSettings = { readonly kind: 'sqlite'; readonly file: string } | ServerDatabase;

/** Of records, and of locks. */
export type StoreSettings = DatabaseSettings | { readonly kind: 'redis'; readonly place: RedisPlace };

export type LockSettings =
  | StoreSettings
  /** Locks of a session of the database, with leases in its tables. */
  | { readonly kind: 'session'; readonly database: ServerDatabase }
  /** Where there are locks and nothing else. */
  | Exclude<StoreChoice, { readonly kind: 'embedded' | StoreSettings['kind'] }>;

/** Where a run keeps what; every process of the run connects by these. */
export interface StorageSettings {
  readonly data: DatabaseSettings;
  readonly locks: LockSettings;
  /** Where it is kept what was done before, and with which answer. */
  readonly records: StoreSettings;
  /** Set before every key of a lock and a record, so that runs do not meet on one server. */
  readonly namespace: string;
}

const NAMESPACE = 'demo-billing';

/**
 * Invoices, locks and records never share a SQLite file: it takes one writer at a time, and a lease cannot wait for a
 * report.
 */
export function storageFor(store: StoreChoice, folder: string, runId: string): StorageSettings {
  const embedded = sqliteStorage(join(folder, 'invoices.db'));
  const beside = { ...embedded, namespace: `${NAMESPACE}-${runId}` };
  switch (store.kind) {
    case 'embedded':
      return embedded;
    case 'sqlite':
      return sqliteStorage(store.file);
    case 'redis':
      return { ...beside, locks: store, records: store };
    case 'postgres':
    case 'mysql':
      return serverStorage(
        { kind: store.kind, url: store.url, schema: `demo_billing_${runId}` },
        store.sessionLocks,
      );
    default:
      return { ...beside, locks: store };
  }
}

function sqliteStorage(file: string): StorageSettings {
  return {
    data: { kind: 'sqlite', file },
    locks: { kind: 'sqlite', file: `${file}-locks` },
    records: { kind: 'sqlite', file: `${file}-records` },
    namespace: NAMESPACE,
  };
}

function serverStorage(database: ServerDatabase, sessionLocks: boolean): StorageSettings {
  const locks = sessionLocks ? ({ kind: 'session', database } as const) : database;
  return { data: database, locks, records: database, namespace: NAMESPACE };
}
