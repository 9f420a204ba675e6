import type { EntityManager } from 'typeorm';

import { unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, Label } from './invoices.js';
import { contents, empty, Owners, seed, type Owner } from './owners.js';
import { promised } from './promised.js';

describeOnEachDatabase('A transaction of a guarded DataSource', (start, dialect) => {
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
      expect(await runner.query("SELECT '1' AS one")).toEqual([{ one: '1' }]);
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

  it('does not commit for a stale owner that does not know, not even rows that no lock protects', async () => {
    const stale = await owners.hold(first, `invoice:${id}`);
    const current = await owners.takeOver(stale, second);
    const name = `label ${id}`;
    const commits = stale.run(() =>
      first.dataSource.transaction((manager) => manager.insert(Label, { name })),
    );
    await expect(commits).rejects.toMatchObject(fencedOut);
    expect(await second.repository(Label).countBy({ name })).toBe(0);
    await current.release();
  });

  it('does not commit when its call has given the lock back meanwhile (C129)', async () => {
    const [settled, givenBack] = [promised(), promised()];
    let late: Promise<unknown> = Promise.resolve();
    await first.locks.withLock(`invoice:${id}`, async () => {
      late = first.dataSource.transaction(async (manager) => {
        await settle(manager);
        settled.keep();
        await givenBack.kept;
      });
      late.catch(() => settled.keep());
      await settled.kept;
    });
    givenBack.keep();
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
      const [begun, mayEnd] = [promised(), promised()];
      const transaction = first.dataSource.transaction(async () => {
        begun.keep();
        await mayEnd.kept;
      });
      await begun.kept;
      const beside = lockInside();
      if (dialect === 'sqlite') mayEnd.keep(); // one writer at a time: to raise the fence waits for its end
      expect(await beside).toBe('entered');
      mayEnd.keep();
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
    if (dialect === 'sqlite') return; // one connection: there is no beside
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
});
