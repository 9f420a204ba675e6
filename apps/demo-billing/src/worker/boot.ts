import type { INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { LockEvents } from 'nestjs-distributed-lock';

import { BillingModule } from '../billing/billing.module.js';
import { BillingService } from '../billing/billing.service.js';
import { UnsafeBillingModule } from '../unsafe/unsafe-billing.module.js';
import { UnsafeBillingService } from '../unsafe/unsafe-billing.service.js';
import type { FaultPoints } from './fault-points.js';
import { struckCollaborators } from './struck-collaborators.js';
import type { Biller, DeskNews } from './worker-desk.js';
import type { WorkerSettings } from './worker-settings.js';

export interface Booted {
  readonly app: INestApplicationContext;
  readonly biller: Biller;
}

/** Errors of the boot are the caller's to report. */
const QUIET = { logger: false, abortOnError: false } as const;

/** Starts the Nest application of a worker. `onNews` hears what it is told while it works. */
export function boot(
  settings: WorkerSettings,
  faults: FaultPoints,
  onNews: (news: DeskNews) => void,
): Promise<Booted> {
  return settings.unsafe ? bootUnsafe(settings, faults, onNews) : bootSafe(settings, faults, onNews);
}

async function bootSafe(
  settings: WorkerSettings,
  faults: FaultPoints,
  onEvent: (news: DeskNews) => void,
): Promise<Booted> {
  const instead = struckCollaborators(faults, settings.gatewayAddress);
  const app = await NestFactory.createApplicationContext(
    BillingModule.forRun(settings, { instead, onEvent }),
    QUIET,
  );
  app.get(LockEvents).subscribe((event) => {
    if (event.type === 'acquired') onEvent(event);
  });
  return { app, biller: app.get(BillingService) };
}

async function bootUnsafe(
  settings: WorkerSettings,
  faults: FaultPoints,
  onNews: (news: DeskNews) => void,
): Promise<Booted> {
  const instead = struckCollaborators(faults, settings.gatewayAddress);
  const onAcquired = (token: number): void => onNews({ type: 'acquired', token });
  const module = UnsafeBillingModule.forRun(settings, { instead, onAcquired });
  const app = await NestFactory.createApplicationContext(module, QUIET);
  return { app, biller: app.get(UnsafeBillingService) };
}
