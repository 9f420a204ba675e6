import type { BillingOptions } from '../billing/billing.module.js';

/** What a worker process is told at its start. */
export interface WorkerSettings extends BillingOptions {
  /** Settle under a bare TTL lock. */
  readonly unsafe: boolean;
}
