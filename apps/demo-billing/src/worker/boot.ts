import type { INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { LockEvents } from 'nestjs-distributed-lock';

import { BillingModule } from '../billing/billing.module.js';
import { BillingService } from '../billing/billing.service.js';
import { UnsafeBillingModule } from '../unsafe/unsafe-billing.module.js';
import { UnsafeBillingService } from '../unsafe/unsafe-billing.service.js';
import type { FaultPoints } from './fault-points.js';
import { struckCollaborators } from './struck-collaborators.js';
import type { Biller } from './worker-desk.js';
import type { WorkerSettings } from './worker-settings.js';

export interface Booted {
  readonly app: INestApplicationContext;
  readonly biller: Biller;
}

/** Errors of the boot are the caller's to report. */
const QUIET = { logger: false, abortOnError: false } as const;

/** Starts the Nest application of a worker. `onAcquired` hears of every lock that it takes. */
export function boot(
  settings: WorkerSettings,
  faults: FaultPoints,
  onAcquired: (token: number) => void,
): Promise<Booted> {
  return settings.unsafe ? bootUnsafe(settings, faults, onAcquired) : bootSafe(settings, faults, onAcquired);
}

async function bootSafe(
  settings: WorkerSettings,
  faults: FaultPoints,
  onAcquired: (token: number) => void,
): Promise<Booted> {
  const collaborators = struckCollaborators(faults, settings.gatewayAddress);
  const app = await NestFactory.createApplicationContext(
    BillingModule.forRun(settings, collaborators),
    QUIET,
  );
  app.get(LockEvents).subscribe((event) => {
    if (event.type === 'acquired') onAcquired(event.token);
  });
  return { app, biller: app.get(BillingService) };
}

async function bootUnsafe(
  settings: WorkerSettings,
  faults: FaultPoints,
  onAcquired: (token: number) => void,
): Promise<Booted> {
  const collaborators = struckCollaborators(faults, settings.gatewayAddress);
  const module = UnsafeBillingModule.forRun(settings, collaborators, onAcquired);
  const app = await NestFactory.createApplicationContext(module, QUIET);
  return { app, biller: app.get(UnsafeBillingService) };
}
