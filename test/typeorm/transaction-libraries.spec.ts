import { Injectable } from '@nestjs/common';
import type { TestingModule } from '@nestjs/testing';
import { getDataSourceToken, InjectRepository } from '@nestjs/typeorm';
import { Transactional as ClsTransactional, ClsPluginTransactional } from '@nestjs-cls/transactional';
import { TransactionHost } from '@nestjs-cls/transactional';
import { TransactionalAdapterTypeOrm } from '@nestjs-cls/transactional-adapter-typeorm';
import { ClsModule } from 'nestjs-cls';
import { Repository } from 'typeorm';
import {
  addTransactionalDataSource,
  deleteDataSourceByName,
  initializeTransactionalContext,
  StorageDriver,
  Transactional,
} from 'typeorm-transactional';

import { IdempotencyService, Idempotent, Locked, LockService } from 'nestjs-distributed-lock';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, Label } from './invoices.js';
import { Owners, seed, type Owner } from './owners.js';
import { startBilling, type Billing } from './transaction-libraries.js';

@Injectable()
class BillingOfTypeOrmTransactional implements Billing {
  constructor(
    @InjectRepository(Invoice) private readonly invoices: Repository<Invoice>,
    @InjectRepository(Label) private readonly labels: Repository<Label>,
  ) {}

  @Locked('invoice:<0>')
  @Transactional()
  async lockedFirst(_id: string, work: () => Promise<unknown>): Promise<unknown> {
    return work();
  }

  @Transactional()
  @Locked('invoice:<0>')
  async transactionFirst(_id: string, work: () => Promise<unknown>): Promise<unknown> {
    return work();
  }

  @Locked('invoice:<0>')
  @Idempotent('settle:<0>', { fingerprint: false })
  @Transactional()
  async idempotentFirst(_id: string, work: () => Promise<unknown>): Promise<unknown> {
    return work();
  }

  @Transactional()
  @Idempotent('settle:<0>', { fingerprint: false })
  async transactionAboveIdempotent(_id: string, work: () => Promise<unknown>): Promise<unknown> {
    return work();
  }

  async settle(id: string): Promise<unknown> {
    const invoice = await this.invoices.findOneByOrFail({ id });
    return this.invoices.save(Object.assign(invoice, { status: 'SETTLED' }));
  }

  label(name: string): Promise<unknown> {
    return this.labels.insert({ name });
  }
}

@Injectable()
class BillingOfNestjsCls implements Billing {
  constructor(private readonly host: TransactionHost<TransactionalAdapterTypeOrm>) {}

  @Locked('invoice:<0>')
  @ClsTransactional()
  async lockedFirst(_id: string, work: () => Promise<unknown>): Promise<unknown> {
    return work();
  }

  @ClsTransactional()
  @Locked('invoice:<0>')
  async transactionFirst(_id: string, work: () => Promise<unknown>): Promise<unknown> {
    return work();
  }

  @Locked('invoice:<0>')
  @Idempotent('settle:<0>', { fingerprint: false })
  @ClsTransactional()
  async idempotentFirst(_id: string, work: () => Promise<unknown>): Promise<unknown> {
    return work();
  }

  @ClsTransactional()
  @Idempotent('settle:<0>', { fingerprint: false })
  async transactionAboveIdempotent(_id: string, work: () => Promise<unknown>): Promise<unknown> {
    return work();
  }

  async settle(id: string): Promise<unknown> {
    const invoice = await this.host.tx.findOneByOrFail(Invoice, { id });
    return this.host.tx.save(Object.assign(invoice, { status: 'SETTLED' }));
  }

  label(name: string): Promise<unknown> {
    return this.host.tx.insert(Label, { name });
  }
}

const libraries = {
  'typeorm-transactional': {
    service: BillingOfTypeOrmTransactional,
    prepare: addTransactionalDataSource,
    begin: () => void initializeTransactionalContext({ storageDriver: StorageDriver.ASYNC_LOCAL_STORAGE }),
    end: () => void deleteDataSourceByName('default'),
  },
  '@nestjs-cls/transactional': {
    service: BillingOfNestjsCls,
    prepare: <D>(dataSource: D): D => dataSource,
    imports: [
      ClsModule.forRoot({
        plugins: [
          new ClsPluginTransactional({
            adapter: new TransactionalAdapterTypeOrm({ dataSourceToken: getDataSourceToken() }),
          }),
        ],
      }),
    ],
    begin: () => undefined,
    end: () => undefined,
  },
};

describeOnEachDatabase('An application whose transactions are begun', (start) => {
  let owners: Owners;
  let successor: Owner;
  let lastId = 0;
  let id: string;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    successor = await owners.add();
  });
  beforeEach(() => seed(successor, (id = `${++lastId}`)));
  afterAll(() => owners.stop());

  for (const [library, { begin, end, ...wiring }] of Object.entries(libraries)) {
    describe(`by ${library}`, () => {
      let module: TestingModule;
      let billing: Billing;

      beforeAll(async () => {
        begin();
        module = await startBilling(owners, wiring);
        billing = module.get<Billing>(wiring.service);
      });
      afterAll(async () => {
        await module.close();
        end();
      });

      const status = async (): Promise<string> =>
        (await successor.repository(Invoice).findOneByOrFail({ id })).status;
      const labels = (name: string): Promise<number> => successor.repository(Label).countBy({ name });

      it('refuses @Transactional above @Locked before the body, and takes no lock', async () => {
        let entered = false;
        const call = billing.transactionFirst(id, async () => (entered = true));
        await expect(call).rejects.toMatchObject({ code: 'LOCK_INSIDE_TRANSACTION', outcome: 'not-started' });
        expect(entered).toBe(false);
        await (await owners.hold(successor, `invoice:${id}`)).release();
      });

      it('runs @Locked above @Transactional in one transaction, which commits or rolls back as a whole', async () => {
        await billing.lockedFirst(id, async () => {
          await billing.label(`kept ${library} ${id}`);
          await billing.settle(id);
        });
        expect([await status(), await labels(`kept ${library} ${id}`)]).toEqual(['SETTLED', 1]);
        const failing = billing.lockedFirst(id, async () => {
          await billing.label(`undone ${library} ${id}`);
          throw new Error('the gateway said no');
        });
        await expect(failing).rejects.toThrow('the gateway said no');
        expect(await labels(`undone ${library} ${id}`)).toBe(0);
      });

      it('keeps the record of @Idempotent above @Transactional only when that has committed (either order with @Locked)', async () => {
        const settle = async (): Promise<string> => {
          await billing.settle(id);
          await billing.label(`once ${library} ${id}`);
          return 'settled';
        };
        const failing = billing.idempotentFirst(id, async () => {
          await settle();
          throw new Error('the gateway said no');
        });
        await expect(failing).rejects.toThrow('the gateway said no');
        expect([await status(), await labels(`once ${library} ${id}`)]).toEqual(['READY', 0]);
        expect(await billing.idempotentFirst(id, settle)).toBe('settled');
        expect(await billing.idempotentFirst(id, settle)).toBe('settled');
        expect([await status(), await labels(`once ${library} ${id}`)]).toEqual(['SETTLED', 1]);
      });

      it('refuses @Transactional above @Idempotent before the body, and claims nothing', async () => {
        let entered = false;
        const call = billing.transactionAboveIdempotent(id, async () => (entered = true));
        await expect(call).rejects.toMatchObject({ code: 'LOCK_INSIDE_TRANSACTION', outcome: 'not-started' });
        expect(entered).toBe(false);
        expect(await module.get(IdempotencyService).inspect(`settle:${id}`)).toBeNull();
      });

      it('joins a hold that is there already, inside the transaction', async () => {
        const locks = module.get(LockService);
        await billing.lockedFirst(id, () => locks.withLock(`invoice:${id}`, () => billing.settle(id)));
        expect(await status()).toBe('SETTLED');
      });

      it('does not commit for a stale owner that does not know, whether it wrote a row of the lock or not', async () => {
        for (const write of [() => billing.settle(id), () => Promise.resolve()]) {
          const name = `stale ${library} ${id}`;
          const locks = module.get(LockService);
          const stale = await locks.acquire(`invoice:${id}`, { ttlMs: 120_000 });
          const current = await owners.takeOver(stale, successor);
          const late = stale.run(() =>
            billing.lockedFirst(id, async () => {
              await billing.label(name);
              await write().catch(() => undefined); // user code that swallows the refusal
            }),
          );
          await expect(late).rejects.toMatchObject({ code: 'FENCED_OUT' });
          await Promise.all([stale.release(), current.release()]);
          expect([await status(), await labels(name)]).toEqual(['READY', 0]);
        }
      });

      it('does not commit once the lease is lost', async () => {
        const locks = module.get(LockService);
        const lease = await locks.acquire(`invoice:${id}`, { ttlMs: 120_000 });
        const late = lease.run(() =>
          billing.lockedFirst(id, async () => {
            await billing.settle(id);
            lease.lose('expired');
          }),
        );
        await expect(late).rejects.toMatchObject({ code: 'LEASE_LOST' });
        expect(await status()).toBe('READY');
        await lease.release();
      });
    });
  }
});
