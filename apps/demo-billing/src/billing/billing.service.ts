import { Injectable } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { Idempotent, LockContext, Locked } from 'nestjs-distributed-lock';
import { Repository } from 'typeorm';

import { PayoutGateway } from '../gateway/payout-gateway.js';
import { Invoice } from './invoice.entity.js';
import { receiptFor, type Receipt } from './receipt.js';

/** Settles invoices: charges what is due, once, and notes it. */
@Injectable()
export class BillingService {
  constructor(
    @InjectRepository(Invoice) private readonly invoices: Repository<Invoice>,
    private readonly gateway: PayoutGateway,
    private readonly lock: LockContext,
  ) {}

  @Idempotent('payout:<id>')
  @Locked('invoice:<id>')
  async settle(id: string): Promise<Receipt> {
    const invoice = await this.invoices.findOneByOrFail({ id });
    if (invoice.status === 'SETTLED') return receiptFor(invoice); // an attempt died after it had saved
    await this.gateway.send({
      invoiceId: id,
      amountMinor: invoice.amountMinor,
      currency: invoice.currency,
      fencingToken: this.lock.token, // a worker that slept through its lease stops here
      idempotencyKey: this.lock.idempotencyKey, // the same in every attempt: one that died after the charge is not charged again
    });
    invoice.status = 'SETTLED';
    invoice.settledAt = new Date().toISOString();
    await this.invoices.save(invoice); // refused by the database if a newer owner was here
    return receiptFor(invoice);
  }
}
