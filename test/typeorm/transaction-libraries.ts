import type { Type } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { TypeOrmModule } from '@nestjs/typeorm';
import type { DataSource } from 'typeorm';

import { DistributedLockModule, memoryIdempotencyStore } from 'nestjs-distributed-lock';
import { DistributedLockTypeOrmModule } from 'nestjs-distributed-lock/typeorm';

import { Invoice, InvoiceLine, Label } from './invoices.js';
import type { Owners } from './owners.js';

/** What both applications below have, whichever library begins their transactions. */
export interface Billing {
  /** `@Locked` above `@Transactional`. */
  lockedFirst(id: string, work: () => Promise<unknown>): Promise<unknown>;
  /** `@Transactional` above `@Locked`. */
  transactionFirst(id: string, work: () => Promise<unknown>): Promise<unknown>;
  /** `@Locked` above `@Idempotent` above `@Transactional`. */
  idempotentFirst(id: string, work: () => Promise<unknown>): Promise<unknown>;
  /** `@Transactional` above `@Idempotent`. */
  transactionAboveIdempotent(id: string, work: () => Promise<unknown>): Promise<unknown>;
  /** Saves through the injected repository, which the library leads into its transaction. */
  settle(id: string): Promise<unknown>;
  /** A row that no lock protects. */
  label(name: string): Promise<unknown>;
}

interface Wiring {
  readonly service: Type<Billing>;
  /** What the library asks of the DataSource. */
  readonly prepare: (dataSource: DataSource) => DataSource;
  readonly imports?: NonNullable<Parameters<typeof Test.createTestingModule>[0]['imports']>;
}

/** A Nest application on the database and lock store of `owners`. */
export async function startBilling(
  owners: Owners,
  { service, prepare, imports = [] }: Wiring,
): Promise<TestingModule> {
  const entities = [Invoice, InvoiceLine, Label];
  const module = await Test.createTestingModule({
    imports: [
      TypeOrmModule.forRootAsync({
        useFactory: () => ({}),
        dataSourceFactory: async () => prepare(await owners.database.connect({ entities })),
      }),
      TypeOrmModule.forFeature(entities),
      DistributedLockModule.forRoot({
        store: () => owners.store,
        idempotency: { store: () => memoryIdempotencyStore() },
      }),
      DistributedLockTypeOrmModule.forRoot(),
      ...imports,
    ],
    providers: [service],
  }).compile();
  return module.init();
}
