import type { EntityManager } from 'typeorm';

import { fencedTransaction, guardDataSource, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { contents, elsewhere, empty, Owners, seed, withOwners, type Owner } from './owners.js';

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describeOnEachDatabase('A transaction of a guarded DataSource', (start, type) => {
  let owners: Owners;
  let first: Owner;
  let second: Owner;
  let lastId = 0;
  let id: string;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    first = await owners.add();
    second = await owners.add();
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(first);
    await seed(first, id);
  });
  afterAll(() => owners.stop());

  const read = (): Promise<Invoice> => second.repository(Invoice).findOneByOrFail({ id });
  const settle = (manager: EntityManager): Promise<unknown> =>
    manager.update(Invoice, { id }, { status: 'SETTLED' });
  const fencedOut = { code: 'FENCED_OUT' };

  describe('in which a write was refused', () => {
    /** Runs `work` as an owner whose successor has the lock already. */
    async function asStale(work: () => Promise<unknown>): Promise<unknown> {
      const stale = await owners.hold(first, `invoice:${id}`);
      const current = await owners.takeOver(stale, second);
      await unfenced('by the successor', () => second.repository(Invoice).update({ id }, { paid: 7 }));
      try {
        return await stale.run(work);
      } finally {
        await current.release();
      }
    }

    it('is void: later statements and the commit are refused, also when user code swallows the error', async () => {
      const before = await contents(second).then((all) => all['label']);
      const outcome = asStale(() =>
        first.dataSource.transaction(async (manager) => {
          await manager.insert(Label, { name: `in ${id}` });
          await expect(settle(manager)).rejects.toMatchObject(fencedOut);
          await expect(manager.insert(Label, { name: `after ${id}` })).rejects.toMatchObject(fencedOut);
          await expect(manager.query('SELECT 1')).rejects.toMatchObject(fencedOut);
        }),
      );
      await expect(outcome).rejects.toMatchObject({ ...fencedOut, cause: fencedOut });
      expect((await contents(second))['label']).toEqual(before);
      expect(await read()).toMatchObject({ status: 'READY', paid: 7 });
    });

    it('is void as a whole when it was a nested part that was refused', async () => {
      const outcome = asStale(() =>
        first.dataSource.transaction(async (outer) => {
          await outer.insert(Label, { name: `outer ${id}` });
          await outer.transaction((inner) => settle(inner)).catch(() => undefined);
          await outer.insert(Label, { name: `later ${id}` }).catch(() => undefined);
        }),
      );
      await expect(outcome).rejects.toMatchObject(fencedOut);
      expect(await second.repository(Label).countBy({ name: `outer ${id}` })).toBe(0);
    });

    it('is void when it was begun by hand, and usable again after the rollback', async () => {
      const runner = first.dataSource.createQueryRunner();
      await asStale(async () => {
        await runner.startTransaction();
        await expect(runner.manager.save(Invoice, { id, status: 'SETTLED' })).rejects.toMatchObject(
          fencedOut,
        );
        await expect(runner.commitTransaction()).rejects.toMatchObject(fencedOut);
        await runner.rollbackTransaction();
      });
      await runner.startTransaction();
      await runner.manager.insert(Label, { name: `again ${id}` });
      await runner.commitTransaction();
      await runner.release();
      expect(await second.repository(Label).countBy({ name: `again ${id}` })).toBe(1);
      expect((await read()).status).toBe('READY');
    });

    it('is void when it was begun in SQL', async () => {
      const runner = first.dataSource.createQueryRunner();
      await asStale(async () => {
        await runner.query('BEGIN');
        await expect(settle(runner.manager)).rejects.toMatchObject(fencedOut);
        await expect(runner.query('/* all is well */ COMMIT')).rejects.toMatchObject(fencedOut);
        await runner.query('ROLLBACK');
      });
      expect(await runner.query('SELECT 1 AS one')).toEqual([{ one: 1 }]);
      await runner.release();
    });
  });

  it('commits only while the lock is held that it began under', async () => {
    const lease = await owners.hold(first, `invoice:${id}`);
    const commits = lease.run(() =>
      first.dataSource.transaction(async (manager) => {
        await manager.insert(Label, { name: `label ${id}` });
        lease.lose('taken-over');
      }),
    );
    await expect(commits).rejects.toMatchObject({ code: 'LEASE_LOST' });
    expect(await second.repository(Label).countBy({ name: `label ${id}` })).toBe(0);
  });

  it('does not commit when its call has given the lock back meanwhile (C129)', async () => {
    let late: Promise<unknown> = Promise.resolve();
    await first.locks.withLock(`invoice:${id}`, async () => {
      late = first.dataSource.transaction(async (manager) => {
        await settle(manager);
        await pause(60);
      });
      late.catch(() => undefined);
      await pause(20);
    });
    await expect(late).rejects.toMatchObject({ code: 'LOCK_NOT_HELD' });
    expect((await read()).status).toBe('READY');
  });

  describe('refuses a lock that is asked for inside (C134)', () => {
    const lockInside = () => first.locks.withLock(`invoice:${id}`, async () => 'entered');
    const refused = { code: 'LOCK_INSIDE_TRANSACTION', outcome: 'not-started' };

    it('whoever began it: dataSource, manager, or a query runner', async () => {
      await expect(first.dataSource.transaction(() => lockInside())).rejects.toMatchObject(refused);
      await expect(first.dataSource.manager.transaction(() => lockInside())).rejects.toMatchObject(refused);
      const runner = first.dataSource.createQueryRunner();
      await runner.startTransaction();
      await expect(lockInside()).rejects.toMatchObject(refused);
      await runner.rollbackTransaction();
      await runner.release();
      expect(await lockInside()).toBe('entered');
    });

    it('but not beside it, nor after it', async () => {
      const transaction = first.dataSource.transaction(async () => {
        await pause(30);
      });
      expect(await lockInside()).toBe('entered');
      await transaction;
      expect(await lockInside()).toBe('entered');
    });

    it('unless the key is held already, or protects no row of this database', async () => {
      const result = await first.locks.withLock(`invoice:${id}`, () =>
        first.dataSource.transaction(async () => [
          await lockInside(),
          await first.locks.withLock('nightly-report', async () => 'other'),
        ]),
      );
      expect(result).toEqual(['entered', 'other']);
    });
  });

  it('is not written past by the hold that began it', async () => {
    if (type === 'sqlite') return; // one connection: there is no beside
    const lease = await owners.hold(first, `invoice:${id}`);
    const beside = lease.run(() =>
      first.dataSource.transaction(async () =>
        first.repository(Invoice).update({ id }, { status: 'SETTLED' }),
      ),
    );
    await expect(beside).rejects.toMatchObject({ code: 'OUTSIDE_TRANSACTION' });
    expect((await read()).status).toBe('READY');
    await lease.release();
  });

  describe('by fencedTransaction()', () => {
    it('gives the manager to the work, commits and resolves with its result', async () => {
      const result = await first.locks.withLock(`invoice:${id}`, () =>
        fencedTransaction(async (manager) => {
          await settle(manager);
          return 'done';
        }),
      );
      expect(result).toBe('done');
      expect((await read()).status).toBe('SETTLED');
    });

    it('rolls back when the work fails', async () => {
      const work = first.locks.withLock(`invoice:${id}`, () =>
        fencedTransaction(async (manager) => {
          await settle(manager);
          throw new Error('the gateway said no');
        }),
      );
      await expect(work).rejects.toThrow('the gateway said no');
      expect((await read()).status).toBe('READY');
    });

    it('does not enter the work of a stale owner, even when it would write no fenced row', async () => {
      const stale = await owners.hold(first, `invoice:${id}`);
      const current = await owners.takeOver(stale, second);
      let entered = false;
      const work = stale.run(() => fencedTransaction(async () => void (entered = true)));
      await expect(work).rejects.toMatchObject(fencedOut);
      expect(entered).toBe(false);
      await current.release();
    });

    it('keeps the successor out until it has ended', async () => {
      const lease = await owners.hold(first, `invoice:${id}`);
      await owners.store.release({ key: lease.qualifiedKey, ownerId: lease.ownerId, keepForMs: 0 }, 1_000);
      const order: string[] = [];
      const take = () => second.locks.acquire(`invoice:${id}`, { ttlMs: 30_000 });
      const transaction = lease.run(() =>
        fencedTransaction(async (manager) => {
          await settle(manager);
          await pause(150);
          order.push('committing');
        }),
      );
      await pause(50);
      const successor = take().then((next) => {
        order.push('successor');
        return next;
      });
      await transaction;
      await (await successor).release();
      expect(order).toEqual(['committing', 'successor']);
    });

    it('makes a successor give up in time, and give the lock back, when it takes too long', async () => {
      const lease = await owners.hold(first, `invoice:${id}`);
      await owners.store.release({ key: lease.qualifiedKey, ownerId: lease.ownerId, keepForMs: 0 }, 1_000);
      await lease.run(() =>
        fencedTransaction(async (manager) => {
          await settle(manager);
          const sentAtMs = performance.now();
          await expect(
            elsewhere(() => second.locks.acquire(`invoice:${id}`, { ttlMs: 600 })),
          ).rejects.toMatchObject({
            code: 'STORE_UNAVAILABLE',
            outcome: 'not-started',
          });
          expect(performance.now() - sentAtMs).toBeLessThan(2_000);
        }),
      );
      expect(second.locks.busy).toBe(false);
    });

    it('does not commit once the lock is lost', async () => {
      const lease = await owners.hold(first, `invoice:${id}`);
      const work = lease.run(() =>
        fencedTransaction(async (manager) => {
          await settle(manager);
          lease.lose('expired');
        }),
      );
      await expect(work).rejects.toMatchObject({ code: 'LEASE_LOST' });
      expect((await read()).status).toBe('READY');
    });

    it('becomes a part of the transaction it is called in', async () => {
      const work = first.locks.withLock(`invoice:${id}`, () =>
        first.dataSource.transaction(async (outer) => {
          await fencedTransaction(async (inner) => {
            expect(inner.queryRunner).toBe(outer.queryRunner);
            await settle(inner);
          });
          throw new Error('later');
        }),
      );
      await expect(work).rejects.toThrow('later');
      expect((await read()).status).toBe('READY');
    });

    it('says what is missing: a lock, guards, or a choice between databases', async () => {
      const nothing = async (): Promise<void> => undefined;
      await expect(fencedTransaction(nothing)).rejects.toMatchObject({ code: 'LOCK_NOT_HELD' });
      const wrong = { code: 'LOCK_CONFIG_INVALID' };
      await first.locks.withLock('nightly-report', () =>
        expect(fencedTransaction(nothing)).rejects.toMatchObject(wrong),
      );
      const plain = await owners.add({ plain: true });
      await first.locks.withLock(`invoice:${id}`, async () => {
        await expect(fencedTransaction(nothing, { dataSource: plain.dataSource })).rejects.toMatchObject(
          wrong,
        );
        await fencedTransaction(nothing, { dataSource: first.dataSource });
      });
      const twin = await owners.database.connect({ entities: [Invoice, InvoiceLine, Label] });
      guardDataSource(twin, first.locks);
      await first.locks.withLock(`invoice:${id}`, async () => {
        await expect(fencedTransaction(nothing)).rejects.toThrow(/write \{ dataSource \}/);
        await fencedTransaction(nothing, { dataSource: twin });
      });
      await twin.destroy();
    });
  });
});

describeOnEachDatabase('Twenty locked calls with transactions at once', (start) => {
  it('finish with one connection in the pool, and each keeps or loses only its own writes (C052, C093)', async () => {
    await withOwners(start, async (owners) => {
      const owner = await owners.add({}, { poolSize: 1 });
      const ids = Array.from({ length: 20 }, (_, i) => `${i}`);
      await seed(owner, ...ids);
      const pay = (id: string): Promise<unknown> =>
        owner.locks.withLock(`invoice:${id}`, { waitMs: 30_000 }, () =>
          owner.dataSource.transaction(async (manager) => {
            const invoice = await manager.findOneByOrFail(Invoice, { id });
            await manager.save(Object.assign(invoice, { paid: 1 }));
            await pause(Math.random() * 5);
            if (Number(id) % 4 === 3) throw new Error('declined');
            await manager.increment(Invoice, { id }, 'paid', 1);
          }),
        );
      const save = (id: string): Promise<unknown> =>
        owner.locks.withLock(`invoice:${id}`, { waitMs: 30_000 }, () =>
          owner.repository(Invoice).save({ id, status: 'SEEN' }),
        );
      const outcomes = await Promise.allSettled(ids.flatMap((id) => [pay(id), save(id)]));
      expect(outcomes.filter(({ status }) => status === 'rejected')).toHaveLength(5);
      const rows = await owner.repository(Invoice).find();
      for (const { id, paid, status } of rows) {
        expect({ id, paid, status }).toEqual({ id, paid: Number(id) % 4 === 3 ? 0 : 2, status: 'SEEN' });
      }
    });
  });
});

describeOnEachDatabase('What only one database can do', (start, type) => {
  if (type === 'sqlite') {
    it('SQLite: waits for other processes without blocking the event loop, so that leases are renewed', async () => {
      await withOwners(start, async (owners) => {
        const [writer, waiter] = [await owners.add(), await owners.add()];
        await seed(writer, '1', '2');
        let ticks = 0;
        const ticking = setInterval(() => (ticks += 1), 10);
        const held = writer.locks.withLock('invoice:1', () =>
          writer.dataSource.transaction(async (manager) => {
            await manager.update(Invoice, { id: '1' }, { paid: 1 });
            await pause(300);
          }),
        );
        await pause(50);
        await unfenced('a write that has to wait', () =>
          waiter.repository(Invoice).update({ id: '2' }, { paid: 2 }),
        );
        await held;
        clearInterval(ticking);
        expect(ticks).toBeGreaterThan(10);
        expect(
          await writer.repository(Invoice).find({ select: { paid: true }, order: { id: 'ASC' } }),
        ).toMatchObject([{ paid: 1 }, { paid: 2 }]);
      });
    });
    return;
  }

  it('PostgreSQL: a COMMIT that was a ROLLBACK is a failure', async () => {
    await withOwners(start, async (owners) => {
      const owner = await owners.add();
      await seed(owner, '1');
      const work = owner.locks.withLock('invoice:1', () =>
        fencedTransaction(async (manager) => {
          await manager.update(Invoice, { id: '1' }, { paid: 1 });
          await manager.query('SELECT nonsense').catch(() => undefined);
        }),
      );
      await expect(work).rejects.toMatchObject({ name: 'RolledBackAtCommitError' });
      expect(await owner.repository(Invoice).findOneByOrFail({ id: '1' })).toMatchObject({ paid: 0 });
    });
  });

  it('PostgreSQL: a stopped owner is thrown out of its transaction when its lease would be over, and not before', async () => {
    await withOwners(start, async (owners) => {
      const owner = await owners.add();
      await seed(owner, '1');
      const limit = async (manager: EntityManager): Promise<number> => {
        const rows = await manager.query(
          `SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'`,
        );
        return Number((rows as { setting: string }[])[0]?.setting);
      };
      await owner.locks.withLock('invoice:1', { ttlMs: 9_000 }, (lease) =>
        fencedTransaction(async (manager) => {
          expect(await limit(manager)).toBeGreaterThan(lease.remainingMs - 50);
          expect(await limit(manager)).toBeLessThanOrEqual(9_000);
        }),
      );
      expect(await limit(owner.dataSource.manager)).toBe(0);
      const lease = await owners.hold(owner, 'invoice:1');
      const stopped = lease.run(() =>
        fencedTransaction(async (manager) => {
          await manager.query('SET LOCAL idle_in_transaction_session_timeout = 100');
          await manager.update(Invoice, { id: '1' }, { paid: 1 });
          await pause(300);
          await manager.update(Invoice, { id: '1' }, { paid: 2 });
        }),
      );
      await expect(stopped).rejects.toThrow(/idle-in-transaction|Connection terminated|already released/);
      expect(await owner.repository(Invoice).findOneByOrFail({ id: '1' })).toMatchObject({ paid: 0 });
    });
  });

  it('PostgreSQL: isolation levels keep the guard, and a snapshot from before the successor cannot commit (C134)', async () => {
    await withOwners(start, async (owners) => {
      const [first, second] = [await owners.add(), await owners.add()];
      await seed(first, '1');
      for (const isolation of ['REPEATABLE READ', 'SERIALIZABLE'] as const) {
        const stale = await owners.hold(first, 'invoice:1');
        const outcome = stale.run(() =>
          first.dataSource.transaction(isolation, async (manager) => {
            await manager.findOneByOrFail(Invoice, { id: '1' });
            const current = await owners.takeOver(stale, second);
            await manager.update(Invoice, { id: '1' }, { paid: 5 }).finally(() => current.release());
          }),
        );
        await expect(outcome).rejects.toThrow(/could not serialize|refused/);
        await stale.release();
        await first.locks.withLock('invoice:1', { ttlMs: 30_000 }, () =>
          fencedTransaction((manager) => manager.increment(Invoice, { id: '1' }, 'paid', 1), { isolation }),
        );
      }
      expect(await first.repository(Invoice).findOneByOrFail({ id: '1' })).toMatchObject({ paid: 2 });
    });
  });
});
