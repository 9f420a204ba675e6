import { Controller, Module, Param, Post, UseGuards, type DynamicModule } from '@nestjs/common';

import type { BillingOptions } from '../billing/billing.module.js';
import { receiptFor, type Receipt } from '../billing/receipt.js';
import { InvoiceOwnerGuard } from '../http/invoice-owner.guard.js';
import { UnsafeBillingModule } from './unsafe-billing.module.js';
import { UnsafeBillingService } from './unsafe-billing.service.js';

/** The same route without a record: whoever has no answer and asks again may pay twice. Do not copy. */
@Controller('invoices')
@UseGuards(InvoiceOwnerGuard)
class UnsafePaymentsController {
  constructor(private readonly billing: UnsafeBillingService) {}

  @Post(':id/pay')
  async pay(@Param('id') id: string): Promise<Receipt> {
    return receiptFor(await this.billing.settle(id));
  }
}

@Module({})
export class UnsafePaymentsModule {
  static forRun(options: BillingOptions): DynamicModule {
    return {
      module: UnsafePaymentsModule,
      imports: [UnsafeBillingModule.forRun(options)],
      controllers: [UnsafePaymentsController],
    };
  }
}
