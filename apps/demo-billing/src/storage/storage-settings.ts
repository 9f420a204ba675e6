import { join } from 'node:path';

import type { StoreChoice } from '../command-line/store-choice.js';

export type DatabaseSettings =
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'postgres'; readonly url: string; readonly schema: string };

/** Of records, and of locks. */
export type StoreSettings = DatabaseSettings | { readonly kind: 'redis'; readonly url: string };

export type LockSettings =
  | StoreSettings
  | { readonly kind: 'redlock'; readonly urls: readonly string[] }
  | { readonly kind: 'advisory'; readonly database: DatabaseSettings };

/** Where a run keeps what; every process of the run connects by these. */
export interface StorageSettings {
  readonly data: DatabaseSettings;
  readonly locks: LockSettings;
  /** Where it is kept what was done before, and with which answer. */
  readonly records: StoreSettings;
  /** Set before every key of a lock and a record, so that runs do not meet on one Redis server. */
  readonly namespace: string;
}

const NAMESPACE = 'demo-billing';

/**
 * Invoices, locks and records never share a SQLite file: it takes one writer at a time, and a lease cannot wait for a
 * report.
 */
export function storageFor(store: StoreChoice, folder: string, runId: string): StorageSettings {
  const embedded = { kind: 'sqlite', file: join(folder, 'invoices.db') } as const;
  switch (store.kind) {
    case 'embedded':
      return sqliteStorage(embedded.file);
    case 'sqlite':
      return sqliteStorage(store.file);
    case 'redis':
      return redisStorage(embedded.file, store.url, runId);
    case 'redlock':
      return {
        ...sqliteStorage(embedded.file),
        locks: store,
        namespace: `${NAMESPACE}-${runId}`,
      };
    case 'postgres':
    case 'postgres+advisory': {
      const database = { kind: 'postgres', url: store.url, schema: `demo_billing_${runId}` } as const;
      const locks = store.kind === 'postgres' ? database : ({ kind: 'advisory', database } as const);
      return { data: database, locks, records: database, namespace: NAMESPACE };
    }
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

function redisStorage(file: string, url: string, runId: string): StorageSettings {
  const redis = { kind: 'redis', url } as const;
  return {
    data: { kind: 'sqlite', file },
    locks: redis,
    records: redis,
    namespace: `${NAMESPACE}-${runId}`,
  };
}
