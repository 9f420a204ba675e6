import { Module, type DynamicModule, type Provider } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';

import type { BillingOptions } from '../billing/billing.module.js';
import { Invoice } from '../billing/invoice.entity.js';
import { PayoutGateway } from '../gateway/payout-gateway.js';
import { invoiceDatabase } from '../storage/data-source-options.js';
import { lockStore } from '../storage/lock-store.js';
import { BareTtlLock } from './bare-ttl-lock.js';
import { UnsafeBillingService } from './unsafe-billing.service.js';

export interface UnsafeExtras {
  readonly instead?: readonly Provider[];
  readonly onAcquired?: (token: number) => void;
}

/** No guards: the invoices are an ordinary table here. */
@Module({})
export class UnsafeBillingModule {
  static forRun(
    { storage, gatewayAddress, leaseMs, waitMs }: BillingOptions,
    { instead = [], onAcquired = () => undefined }: UnsafeExtras = {},
  ): DynamicModule {
    const times = { ttlMs: leaseMs, waitMs };
    return {
      module: UnsafeBillingModule,
      imports: [TypeOrmModule.forRoot(invoiceDatabase(storage.data)), TypeOrmModule.forFeature([Invoice])],
      providers: [
        UnsafeBillingService,
        { provide: PayoutGateway, useFactory: () => new PayoutGateway(gatewayAddress) },
        {
          provide: BareTtlLock,
          useFactory: () => new BareTtlLock(lockStore(storage.locks), times, onAcquired),
        },
        ...instead,
      ],
      exports: [UnsafeBillingService, TypeOrmModule],
    };
  }
}
