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
  /** Set before every lock key, so that runs do not meet on one server. */
  readonly namespace: string;
}

/** Locks and invoices never share a SQLite file: it takes one writer at a time, and a lease cannot wait for a report. */
export function storageFor(store: StoreChoice, folder: string, runId: string): StorageSettings {
  const namespace = `demo-billing-${runId}`;
  const embedded: DatabaseSettings = { kind: 'sqlite', file: join(folder, 'invoices.db') };
  switch (store.kind) {
    case 'embedded':
      return { data: embedded, locks: { kind: 'sqlite', file: join(folder, 'locks.db') }, namespace };
    case 'sqlite':
      return {
        data: { kind: 'sqlite', file: store.file },
        locks: { kind: 'sqlite', file: `${store.file}-locks` },
        namespace,
      };
    case 'redis':
      return { data: embedded, locks: { kind: 'redis', url: store.url }, namespace };
    case 'postgres': {
      const database = { kind: 'postgres', url: store.url, schema: `demo_billing_${runId}` } as const;
      return { data: database, locks: database, namespace };
    }
  }
}
