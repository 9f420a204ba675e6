import 'reflect-metadata';

import { NestFactory } from '@nestjs/core';

import type { BillingOptions } from '../billing/billing.module.js';
import { followParent, ownSettings, tellParent } from '../processes/child-side.js';
import { UnsafePaymentsModule } from '../unsafe/unsafe-payments.module.js';
import { PaymentsModule } from './payments.module.js';

/** What a replica is told at its start. */
export interface ReplicaSettings extends BillingOptions {
  /** On the loopback; 0 takes a free one. */
  readonly port: number;
  /** Serve the same route without records, tokens and guards. */
  readonly unsafe: boolean;
}

/** What it says once it listens, or why it cannot. */
export type FromReplica =
  | { readonly kind: 'listening'; readonly address: string }
  | { readonly kind: 'not-started'; readonly reason: string }
  | { readonly kind: 'unhandled'; readonly message: string };

/** sysexits.h: "temporary failure, the user is invited to retry". */
const EXIT_NOT_STARTED = 75;

const tell = (message: FromReplica): Promise<void> => tellParent(message);

followParent((error) => tell({ kind: 'unhandled', message: String(error) }));
try {
  await tell({ kind: 'listening', address: await serve(ownSettings<ReplicaSettings>()) });
} catch (error) {
  await tell({ kind: 'not-started', reason: (error as Error).message });
  process.exit(EXIT_NOT_STARTED);
}

async function serve({ port, unsafe, ...options }: ReplicaSettings): Promise<string> {
  const module = unsafe ? UnsafePaymentsModule.forRun(options) : PaymentsModule.forRun(options);
  const app = await NestFactory.create(module, { logger: false, abortOnError: false });
  process.on('message', () => void app.close().finally(() => process.exit(0))); // the one message there is: stop
  await app.listen(port, '127.0.0.1');
  app.useLogger(['warn', 'error']); // what goes wrong before is the parent's to report
  return app.getUrl();
}
