import { Module, type DynamicModule, type Provider } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { DistributedLockModule } from 'nestjs-distributed-lock';
import { DistributedLockTypeOrmModule } from 'nestjs-distributed-lock/typeorm';

import { PayoutGateway } from '../gateway/payout-gateway.js';
import { invoiceDatabase } from '../storage/data-source-options.js';
import { lockStore } from '../storage/lock-store.js';
import type { StorageSettings } from '../storage/storage-settings.js';
import { BillingService } from './billing.service.js';
import { Invoice } from './invoice.entity.js';

export interface BillingOptions {
  readonly storage: StorageSettings;
  readonly gatewayAddress: string;
}

/** While a database is away for some seconds, a worker that starts waits for it. */
const CONNECT_AGAIN = { retryAttempts: 20, retryDelay: 500 };

/** The billing service with its database, its locks and the guards between the two. */
@Module({})
export class BillingModule {
  /** `instead` replaces collaborators of the service: the demo puts its faults there. */
  static forRun(
    { storage, gatewayAddress }: BillingOptions,
    instead: readonly Provider[] = [],
  ): DynamicModule {
    return {
      module: BillingModule,
      imports: [
        TypeOrmModule.forRoot({ ...invoiceDatabase(storage.data), ...CONNECT_AGAIN }),
        TypeOrmModule.forFeature([Invoice]),
        DistributedLockModule.forRoot({
          store: () => lockStore(storage.locks),
          namespace: storage.namespace,
        }),
        DistributedLockTypeOrmModule.forRoot(),
      ],
      providers: [
        BillingService,
        { provide: PayoutGateway, useFactory: () => new PayoutGateway(gatewayAddress) },
        ...instead,
      ],
    };
  }
}
