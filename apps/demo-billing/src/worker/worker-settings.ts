import type { StorageSettings } from '../storage/storage-settings.js';

/** What a worker process is told at its start. */
export interface WorkerSettings {
  readonly storage: StorageSettings;
  readonly gatewayAddress: string;
  /** Settle under a bare TTL lock. */
  readonly unsafe: boolean;
}
