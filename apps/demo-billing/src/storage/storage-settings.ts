import { join } from 'node:path';

import type { StoreChoice } from '../command-line/store-choice.js';

export type DatabaseSettings =
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'postgres'; readonly url: string; readonly schema: string };

export type LockSettings = DatabaseSettings | { readonly kind: 'redis'; readonly url: string };

/** Where a run keeps what; every process of the run connects by these. */
export interface StorageSettings {
  readonly data: DatabaseSettings;
  readonly locks: LockSettings;
  /** Set before every lock key, so that runs do not meet on one Redis server. */
  readonly namespace: string;
}

const NAMESPACE = 'demo-billing';

/** Locks and invoices never share a SQLite file: it takes one writer at a time, and a lease cannot wait for a report. */
export function storageFor(store: StoreChoice, folder: string, runId: string): StorageSettings {
  const embedded = { kind: 'sqlite', file: join(folder, 'invoices.db') } as const;
  switch (store.kind) {
    case 'embedded':
      return sqliteStorage(embedded.file);
    case 'sqlite':
      return sqliteStorage(store.file);
    case 'redis':
      return { data: embedded, locks: { kind: 'redis', url: store.url }, namespace: `${NAMESPACE}-${runId}` };
    case 'postgres': {
      const database = { kind: 'postgres', url: store.url, schema: `demo_billing_${runId}` } as const;
      return { data: database, locks: database, namespace: NAMESPACE };
    }
  }
}

function sqliteStorage(file: string): StorageSettings {
  return {
    data: { kind: 'sqlite', file },
    locks: { kind: 'sqlite', file: `${file}-locks` },
    namespace: NAMESPACE,
  };
}
