import { Injectable } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { Repository } from 'typeorm';

import { Invoice } from '../billing/invoice.entity.js';
import { PayoutGateway } from '../gateway/payout-gateway.js';
import { BareTtlLock } from './bare-ttl-lock.js';

/** The same work as the billing service's, under a lock with a time to live and nothing else. Do not copy. */
@Injectable()
export class UnsafeBillingService {
  constructor(
    @InjectRepository(Invoice) private readonly invoices: Repository<Invoice>,
    private readonly gateway: PayoutGateway,
    private readonly lock: BareTtlLock,
  ) {}

  settle(id: string): Promise<Invoice> {
    return this.lock.run(`invoice:${id}`, async () => {
      const invoice = await this.invoices.findOneByOrFail({ id });
      if (invoice.status === 'SETTLED') return invoice;
      await this.gateway.send({
        invoiceId: id,
        amountMinor: invoice.amountMinor,
        currency: invoice.currency,
      });
      invoice.status = 'SETTLED';
      invoice.settledAt = new Date().toISOString();
      return this.invoices.save(invoice);
    });
  }
}
