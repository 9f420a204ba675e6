import { Controller, Param, Post, UseGuards } from '@nestjs/common';
import { Idempotent } from 'nestjs-distributed-lock';

import { BillingService } from '../billing/billing.service.js';
import type { Receipt } from '../billing/receipt.js';
import { InvoiceOwnerGuard, type TenantRequest } from './invoice-owner.guard.js';

/** Payments for whoever has no queue. The client sends `Idempotency-Key`, and sends it again when it has no answer. */
@Controller('invoices')
@UseGuards(InvoiceOwnerGuard)
export class PaymentsController {
  constructor(private readonly billing: BillingService) {}

  /**
   * Two records, for two questions: "has this client asked before?", by its key, and inside of `settle` "has anybody paid
   * this invoice?". So a second key for the same invoice gets the receipt, and no second charge.
   */
  @Post(':id/pay')
  @Idempotent({ scope: ({ tenant }: TenantRequest) => tenant }) // two tenants may choose the same key
  async pay(@Param('id') id: string): Promise<Receipt> {
    return this.billing.settle(id);
  }
}
