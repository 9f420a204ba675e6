import type { Provider } from '@nestjs/common';
import { getRepositoryToken } from '@nestjs/typeorm';
import { DataSource, type Repository } from 'typeorm';

import { Invoice } from '../billing/invoice.entity.js';
import type { ChargeRequest } from '../gateway/charge.js';
import { PayoutGateway } from '../gateway/payout-gateway.js';
import type { FaultPoints } from './fault-points.js';

/**
 * The repository and the gateway with faults around their calls, so that the billing service itself knows of none: it
 * is written as any other.
 */
export function struckCollaborators(faults: FaultPoints, gatewayAddress: string): Provider[] {
  return [
    {
      provide: getRepositoryToken(Invoice),
      inject: [DataSource],
      useFactory: (database: DataSource) => struckRepository(database.getRepository(Invoice), faults),
    },
    { provide: PayoutGateway, useFactory: () => new StruckGateway(gatewayAddress, faults) },
  ];
}

function struckRepository(invoices: Repository<Invoice>, faults: FaultPoints): Repository<Invoice> {
  return invoices.extend({
    async findOneByOrFail(where: { id: string }): Promise<Invoice> {
      await faults.reached('after-lock');
      const invoice = await invoices.findOneByOrFail(where);
      await faults.reached('after-read');
      return invoice;
    },
    async save(invoice: Invoice): Promise<Invoice> {
      const saved = await invoices.save(invoice);
      await faults.reached('after-save');
      return saved;
    },
  });
}

class StruckGateway extends PayoutGateway {
  constructor(
    address: string,
    private readonly faults: FaultPoints,
  ) {
    super(address);
  }

  override async send(charge: ChargeRequest): Promise<void> {
    await this.faults.reached('before-charge');
    await super.send(charge);
    await this.faults.reached('after-charge');
  }
}
