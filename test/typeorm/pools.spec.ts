import { setTimeout as pause } from 'node:timers/promises';

import type { EntityManager, QueryRunner } from 'typeorm';

import { fencedTransaction, unfenced, type GuardOptions } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine } from './invoices.js';
import { empty, Owners, seed, withOwners, type Owner } from './owners.js';
import { promised } from './promised.js';

const rawBegin = (runner: QueryRunner): Promise<unknown> => runner.query('BEGIN');
const TICKS = 10;

describeOnEachDatabase('Twenty locked calls with transactions at once', (start, dialect) => {
  const ids = Array.from({ length: 20 }, (_, i) => `${i}`);
  let owners: Owners;

  beforeAll(async () => {
    owners = await Owners.on(await start());
  });
  afterAll(() => owners.stop());

  async function ownerWith(poolSize: number, options: GuardOptions = {}): Promise<Owner> {
    const owner = await owners.add(options, { poolSize });
    await empty(owner);
    await seed(owner, ...ids);
    // The first lock opens connections and tests the guards, which is not what is measured here.
    await owner.locks.withLock('invoice:warm-up', { ttlMs: 60_000 }, () => undefined);
    return owner;
  }

  const locked = (owner: Owner, id: string, work: () => Promise<unknown>): Promise<unknown> =>
    owner.locks.withLock(`invoice:${id}`, { waitMs: 60_000 }, work);

  for (const poolSize of [1, 2]) {
    it(`finish with a pool of ${poolSize}, and each keeps or loses only its own writes (C052, C093)`, async () => {
      const owner = await ownerWith(poolSize);
      const pay = (id: string) => async (manager: EntityManager) => {
        const invoice = await manager.findOneByOrFail(Invoice, { id });
        await manager.save(Object.assign(invoice, { paid: 1 }));
        await pause(Math.random() * 5);
        if (Number(id) % 4 === 3) throw new Error('declined');
        await manager.increment(Invoice, { id }, 'paid', 1);
      };
      const calls = ids.flatMap((id) => [
        locked(owner, id, () =>
          Number(id) % 2 === 0 ? fencedTransaction(pay(id), owner) : owner.dataSource.transaction(pay(id)),
        ),
        locked(owner, id, () => owner.repository(Invoice).save({ id, status: 'SEEN' })),
      ]);
      const outcomes = await Promise.allSettled(calls);
      expect(outcomes.filter(({ status }) => status === 'rejected')).toHaveLength(5);
      for (const { id, paid, status } of await owner.repository(Invoice).find()) {
        expect({ id, paid, status }).toEqual({ id, paid: Number(id) % 4 === 3 ? 0 : 2, status: 'SEEN' });
      }
    });

    it(`take no second connection for a guard, by whichever path, with a pool of ${poolSize} (C052)`, async () => {
      const owner = await ownerWith(poolSize, { fenceOnAcquire: false });
      const lines = owner.repository(InvoiceLine);
      const calls = ids.map((id) =>
        locked(owner, id, async () => {
          await owner.repository(Invoice).update({ id }, { paid: 1 });
          await owner.repository(Invoice).save({ id, status: 'SEEN' });
          await lines.insert({ invoice: { id }, text: 'new' });
          await lines.remove(await lines.findBy({ invoice: { id } }));
          await fencedTransaction((manager) => manager.update(Invoice, { id }, { paid: 2 }), owner);
        }),
      );
      await Promise.all(calls);
      expect(await owner.repository(Invoice).countBy({ paid: 2, status: 'SEEN' })).toBe(ids.length);
      expect(await lines.count()).toBe(0);
    });

    if (dialect === 'sqlite') continue; // one connection for all: there is no beside

    it(`fail fast, and name the pool of ${poolSize}, when each asks for another connection beside its transaction`, async () => {
      const owner = await ownerWith(poolSize);
      const allKept = promised();
      let keeping = 0;
      const calls = ids.map((id) =>
        locked(owner, id, () =>
          owner.dataSource.transaction(async (manager) => {
            await manager.update(Invoice, { id }, { paid: 1 });
            if ((keeping += 1) === poolSize) allKept.keep();
            await allKept.kept;
            return owner.repository(Invoice).findOneByOrFail({ id }); // not the manager's: a second connection
          }),
        ),
      );
      const refused = (await Promise.allSettled(calls)).filter((outcome) => outcome.status === 'rejected');
      for (const { reason } of refused) {
        expect(reason).toMatchObject({
          code: 'OUTSIDE_TRANSACTION',
          message: expect.stringContaining(`all ${poolSize} of the DataSource's pool`) as string,
        });
      }
      if (poolSize === 1) expect(refused).toHaveLength(ids.length);
      expect(refused.length).toBeGreaterThan(0);
      expect(await owner.repository(Invoice).countBy({ paid: 1 })).toBe(ids.length - refused.length);
    });
  }
});

describeOnEachDatabase('A query runner that is released with its transaction open', (start, dialect) => {
  if (dialect === 'sqlite') return; // one query runner for all, which nobody owns

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

describeOnEachDatabase('The one connection that SQLite has', (start, dialect) => {
  if (dialect !== 'sqlite') return;

  it('waits for other processes without blocking the event loop, so that leases are renewed', async () => {
    await withOwners(start, async (owners) => {
      const [writer, waiter] = [await owners.add(), await owners.add()];
      await seed(writer, '1', '2');
      const [written, ticked] = [promised(), promised()];
      const held = writer.locks.withLock('invoice:1', () =>
        writer.dataSource.transaction(async (manager) => {
          await manager.update(Invoice, { id: '1' }, { paid: 1 });
          written.keep();
          await ticked.kept;
        }),
      );
      await written.kept;
      let waits = true;
      const waiting = unfenced('a write that has to wait', () =>
        waiter.repository(Invoice).update({ id: '2' }, { paid: 2 }),
      ).finally(() => (waits = false));
      // Timers fire while it waits; if they did not, the writer could not end, and the wait would be in vain.
      for (let tick = 0; tick < TICKS; tick += 1) await pause(10);
      expect(waits).toBe(true);
      ticked.keep();
      await Promise.all([held, waiting]);
      expect(
        await writer.repository(Invoice).find({ select: { paid: true }, order: { id: 'ASC' } }),
      ).toMatchObject([{ paid: 1 }, { paid: 2 }]);
    });
  });
});
