import { Module, type DynamicModule, type Provider } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { DistributedLockModule, type IdempotencyListener } from 'nestjs-distributed-lock';
import { DistributedLockTypeOrmModule } from 'nestjs-distributed-lock/typeorm';

import { PayoutGateway } from '../gateway/payout-gateway.js';
import { invoiceDatabase } from '../storage/data-source-options.js';
import { lockStore } from '../storage/lock-store.js';
import { recordStore } from '../storage/record-store.js';
import type { StorageSettings } from '../storage/storage-settings.js';
import { BillingService } from './billing.service.js';
import { Invoice } from './invoice.entity.js';

export interface BillingOptions {
  readonly storage: StorageSettings;
  readonly gatewayAddress: string;
  /** Of locks and records: how long others wait for a process that has died. The library's defaults are 15 and 30 seconds. */
  readonly leaseMs: number;
  /** For a lock that somebody else has: long enough to see that of a dead owner run out. */
  readonly waitMs: number;
}

/** What an application may add to the module. */
export interface BillingExtras {
  /** Take the place of collaborators of the service: the demo puts its faults there. */
  readonly instead?: readonly Provider[];
  /** Hears what happens to repeated calls: the demo counts it, others feed their metrics. */
  readonly onEvent?: IdempotencyListener;
}

/** While a database is away for some seconds, a worker that starts waits for it. */
const CONNECT_AGAIN = { retryAttempts: 20, retryDelay: 500 };

/** The billing service with its database, its locks, its records and the guards between them. */
@Module({})
export class BillingModule {
  static forRun(
    { storage, gatewayAddress, leaseMs, waitMs }: BillingOptions,
    { instead = [], onEvent }: BillingExtras = {},
  ): DynamicModule {
    return {
      module: BillingModule,
      imports: [
        TypeOrmModule.forRoot({ ...invoiceDatabase(storage.data), ...CONNECT_AGAIN }),
        TypeOrmModule.forFeature([Invoice]),
        DistributedLockModule.forRoot({
          store: () => lockStore(storage.locks),
          defaults: { ttlMs: leaseMs, waitMs },
          idempotency: {
            store: () => recordStore(storage),
            defaults: { leaseMs, waitMs: 0 }, // at work elsewhere: the queue delivers again, the client asks again
            onEvent,
          },
          namespace: storage.namespace,
        }),
        DistributedLockTypeOrmModule.forRoot(),
      ],
      providers: [
        BillingService,
        { provide: PayoutGateway, useFactory: () => new PayoutGateway(gatewayAddress) },
        ...instead,
      ],
      exports: [BillingService, TypeOrmModule],
    };
  }
}
