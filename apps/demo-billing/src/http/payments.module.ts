import { Module, type DynamicModule } from '@nestjs/common';

import { BillingModule, type BillingOptions } from '../billing/billing.module.js';
import { PaymentsController } from './payments.controller.js';

/** The billing service over HTTP. */
@Module({})
export class PaymentsModule {
  static forRun(options: BillingOptions): DynamicModule {
    return {
      module: PaymentsModule,
      imports: [BillingModule.forRun(options)],
      controllers: [PaymentsController],
    };
  }
}
