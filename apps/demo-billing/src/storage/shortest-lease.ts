import { lockStore } from './lock-store.js';
import { recordStore } from './record-store.js';
import type { StorageSettings } from './storage-settings.js';

interface Openable {
  open?(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Asks the stores of locks and records, as every process of the run will, whether they can be used.
 *
 * @returns the shortest lease that they keep, in milliseconds
 * @throws what is wrong with one of them
 */
export async function shortestLeaseMs(storage: StorageSettings): Promise<number> {
  const locks = lockStore(storage.locks);
  const records = recordStore(storage);
  await opened(locks);
  await opened(records);
  return Math.max(locks.minTtlMs, records.minLeaseMs);
}

async function opened(store: Openable): Promise<void> {
  try {
    await store.open?.();
  } finally {
    await store.close();
  }
}
