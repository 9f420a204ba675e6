import { Injectable } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { LockContext, Locked } from 'nestjs-distributed-lock';
import { Repository } from 'typeorm';

import { PayoutGateway } from '../gateway/payout-gateway.js';
import { Invoice } from './invoice.entity.js';
import { LOCK_TTL_MS, LOCK_WAIT_MS } from './lock-times.js';

/** Settles invoices: charges what is due, once, and notes it. */
@Injectable()
export class BillingService {
  constructor(
    @InjectRepository(Invoice) private readonly invoices: Repository<Invoice>,
    private readonly gateway: PayoutGateway,
    private readonly lock: LockContext,
  ) {}

  @Locked('invoice:<id>', { ttlMs: LOCK_TTL_MS, waitMs: LOCK_WAIT_MS })
  async settle(id: string): Promise<Invoice> {
    const invoice = await this.invoices.findOneByOrFail({ id });
    if (invoice.status === 'SETTLED') return invoice;
    await this.gateway.send({
      invoiceId: id,
      amountMinor: invoice.amountMinor,
      currency: invoice.currency,
      fencingToken: this.lock.token, // a worker that slept through its lease stops here
      idempotencyKey: `payout:${id}`, // one that died after the charge is not charged again
    });
    invoice.status = 'SETTLED';
    invoice.settledAt = new Date().toISOString();
    return this.invoices.save(invoice); // refused by the database if a newer owner was here
  }
}
