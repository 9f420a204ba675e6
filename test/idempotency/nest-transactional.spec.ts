import type { Server } from 'node:http';

import { Controller, Injectable, Param, Post, type INestApplication } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  DistributedLockModule,
  Idempotent,
  LockContext,
  Locked,
  LockService,
  memoryIdempotencyStore,
  memoryStore,
} from 'nestjs-distributed-lock';
import {
  createIdempotencyTable,
  DistributedLockTypeOrmModule,
  fencedTransaction,
  transactionManager,
  typeormIdempotencyStore,
} from 'nestjs-distributed-lock/typeorm';
import { TypeOrmModule } from '@nestjs/typeorm';
import request from 'supertest';
import { DataSource, type Repository } from 'typeorm';

import { describeOnEachDatabase } from '../typeorm/databases.js';
import { Invoice, InvoiceLine, Label } from '../typeorm/invoices.js';
import { Owners } from '../typeorm/owners.js';

const [transactional, settings] = [true, { ttlMs: 60_000, waitMs: 0 }];

@Injectable()
class Billing {
  /** As an injected repository would reach it. */
  labels!: Repository<Label>;

  constructor(private readonly context: LockContext) {}

  @Idempotent('pay:<id>', { transactional })
  @Locked('invoice:<id>', settings)
  async recordAbove(id: string): Promise<string> {
    return this.#pay(id);
  }

  @Locked('invoice:<id>', settings)
  @Idempotent('pay:<id>', { transactional })
  async lockAbove(id: string): Promise<string> {
    return this.#pay(id);
  }

  @Idempotent('label:<name>', { transactional: { claim: 'inside', isolation: 'SERIALIZABLE' } })
  async label(name: string): Promise<number> {
    await transactionManager().insert(Label, { name });
    return this.context.attempt;
  }

  @Idempotent('label:<name>', { transactional })
  async besides(name: string): Promise<void> {
    await this.labels.insert({ name });
  }

  async #pay(id: string): Promise<string> {
    return fencedTransaction(async (manager) => {
      expect(manager.queryRunner).toBe(transactionManager().queryRunner);
      await manager.save(manager.create(Invoice, { id, status: 'PAID', address: { city: 'Rome' } }));
      return `${this.context.idempotencyKey} with ${typeof this.context.token}`;
    });
  }
}

@Controller('labels')
class Labels {
  @Post(':name')
  @Idempotent({ transactional })
  async add(@Param('name') name: string): Promise<object> {
    await transactionManager().insert(Label, { name });
    return { name };
  }
}

describeOnEachDatabase('@Idempotent({ transactional }) in an application', (start) => {
  let owners: Owners;
  let app: INestApplication<Server>;
  let billing: Billing;
  let locks: LockService;
  let dataSource: DataSource;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    const module = await Test.createTestingModule({
      imports: [
        TypeOrmModule.forRootAsync({
          useFactory: () => ({}),
          dataSourceFactory: () => owners.database.connect({ entities: [Invoice, InvoiceLine, Label] }),
        }),
        DistributedLockModule.forRootAsync({
          inject: [DataSource],
          useFactory: async (source: DataSource) => {
            await createIdempotencyTable(source);
            return {
              store: memoryStore(),
              idempotency: { store: typeormIdempotencyStore({ dataSource: source }) },
            };
          },
        }),
        DistributedLockTypeOrmModule.forRoot(),
      ],
      controllers: [Labels],
      providers: [Billing],
    }).compile();
    app = module.createNestApplication({ logger: false });
    await app.init();
    [billing, locks, dataSource] = [app.get(Billing), app.get(LockService), app.get(DataSource)];
    billing.labels = dataSource.getRepository(Label);
  });
  afterAll(async () => {
    await app.close();
    await owners.stop();
  });

  const statusOf = async (id: string): Promise<string | undefined> =>
    (await dataSource.getRepository(Invoice).findOneBy({ id }))?.status;

  it.each(['recordAbove', 'lockAbove'] as const)(
    'takes record, lock and transaction in this order, whichever stands above (%s)',
    async (method) => {
      expect(await billing[method](method)).toBe(`pay:${method} with number`);
      expect(await statusOf(method)).toBe('PAID');
      const held = await locks.acquire(`invoice:${method}`);
      expect(await billing[method](method)).toBe(`pay:${method} with number`); // no lock is needed to repeat it
      await held.release();
    },
  );

  it.each(['recordAbove', 'lockAbove'] as const)(
    'frees the record when the lock is busy, and has begun nothing (%s)',
    async (method) => {
      const id = `${method}-busy`;
      const held = await locks.acquire(`invoice:${id}`);
      await expect(billing[method](id)).rejects.toMatchObject({
        code: 'LOCK_TIMEOUT',
        outcome: 'not-started',
      });
      expect(await statusOf(id)).toBeUndefined();
      await held.release();
      expect(await billing[method](id)).toBe(`pay:${id} with number`);
    },
  );

  it('claims inside at the level that is asked for, and counts its attempts', async () => {
    expect([await billing.label('red'), await billing.label('red')]).toEqual([1, 1]);
    expect(await dataSource.getRepository(Label).countBy({ name: 'red' })).toBe(1);
  });

  it('refuses what an injected repository writes beside the transaction', async () => {
    const beside = billing.besides('blue');
    if (owners.database.dialect === 'sqlite') return expect(await beside).toBeUndefined(); // one connection for all
    await expect(beside).rejects.toMatchObject({ code: 'OUTSIDE_TRANSACTION' });
    expect(await dataSource.getRepository(Label).countBy({ name: 'blue' })).toBe(0);
  });

  it('gives a repeated request the answer that was committed with the effect', async () => {
    const post = () => request(app.getHttpServer()).post('/labels/green').set('Idempotency-Key', 'k1');
    const [first, second] = [await post(), await post()];
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(second.body).toEqual({ name: 'green' });
    expect([first, second].map(({ headers }) => headers['idempotency-status'])).toEqual([
      'created',
      'replayed',
    ]);
    expect(await dataSource.getRepository(Label).countBy({ name: 'green' })).toBe(1);
  });
});

it('@Idempotent({ transactional }) does not boot on a store that lies elsewhere, and says what to write', async () => {
  const module = Test.createTestingModule({
    imports: [
      DistributedLockModule.forRoot({
        store: memoryStore(),
        idempotency: { store: memoryIdempotencyStore() },
      }),
    ],
    providers: [Billing],
  });
  await expect(module.compile()).rejects.toThrow(/store is "memory". Write .*typeormIdempotencyStore/s);
});
