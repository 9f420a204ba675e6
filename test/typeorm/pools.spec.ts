import type { QueryRunner } from 'typeorm';

import { unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice } from './invoices.js';
import { seed, withOwners } from './owners.js';

const rawBegin = (runner: QueryRunner): Promise<unknown> => runner.query('BEGIN');
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

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

describeOnEachDatabase('A query runner that is released with its transaction open', (start, type) => {
  if (type === 'sqlite') return; // one query runner for all, which nobody owns

  it('leaves nothing of it in the pool: no lock, no pin, no write that a later commit would bring', async () => {
    await withOwners(start, async (owners) => {
      const [first, second] = [await owners.add({}, { poolSize: 1 }), await owners.add()];
      await seed(first, '1');
      const lease = await owners.hold(first, 'invoice:1');
      for (const begin of [(runner: QueryRunner) => runner.startTransaction(), rawBegin]) {
        await lease.run(async () => {
          const runner = first.dataSource.createQueryRunner();
          await begin(runner);
          await runner.manager.update(Invoice, { id: '1' }, { paid: 77 });
          await runner.release();
          await first.dataSource.transaction((manager) =>
            manager.update(Invoice, { id: '1' }, { status: 'SEEN' }),
          );
        });
        expect(await second.repository(Invoice).findOneByOrFail({ id: '1' })).toMatchObject({
          paid: 0,
          status: 'SEEN',
        });
      }
      await (await owners.takeOver(lease, second)).release();
    });
  });
});

describeOnEachDatabase('The one connection that SQLite has', (start, type) => {
  if (type !== 'sqlite') return;

  it('waits for other processes without blocking the event loop, so that leases are renewed', async () => {
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
});
