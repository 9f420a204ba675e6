import { setTimeout as sleep } from 'node:timers/promises';

import type { EntityManager } from 'typeorm';

import type { Lease } from 'nestjs-distributed-lock';
import { fencedTransaction, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice } from './invoices.js';
import { elsewhere, Owners, seed, type Owner } from './owners.js';

const unfencedElsewhere = (owner: Owner): Promise<unknown> =>
  elsewhere(() =>
    unfenced('a repair by hand', () => owner.repository(Invoice).increment({ id: '1' }, 'paid', 1)),
  );

describeOnEachDatabase('A transaction at each isolation level', (start, dialect) => {
  if (dialect !== 'postgres') return;
  let owners: Owners;
  let first: Owner;
  let second: Owner;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    first = await owners.add();
    second = await owners.add();
    await seed(first, '1');
  });
  beforeEach(() => unfenced('anew', () => first.repository(Invoice).update({ id: '1' }, { paid: 0 })));
  afterAll(() => owners.stop());

  const read = () => second.repository(Invoice).findOneByOrFail({ id: '1' });

  it('takes a COMMIT that was a ROLLBACK for the failure that it is (C029)', async () => {
    const work = first.locks.withLock('invoice:1', () =>
      fencedTransaction(async (manager) => {
        await manager.update(Invoice, { id: '1' }, { paid: 1 });
        await manager.query('SELECT nonsense').catch(() => undefined);
      }),
    );
    await expect(work).rejects.toMatchObject({ name: 'RolledBackAtCommitError' });
    expect(await read()).toMatchObject({ paid: 0 });
  });

  describe('when the fence is touched between the snapshot and the pin', () => {
    /** What happens just before the fence row is pinned, on the first try and on the second. */
    let beforePin: (attempt: number) => Promise<unknown>;
    let attempts: number;
    let entered: number;

    beforeAll(() => {
      first.dataSource.subscribers.push({
        // The statement that takes the snapshot: the pin is the next one.
        afterQuery: async ({ query }) => {
          if (query.includes('idle_in_transaction_session_timeout')) await beforePin((attempts += 1));
        },
      });
    });
    beforeEach(() => {
      attempts = 0;
      entered = 0;
      beforePin = async () => undefined;
    });
    afterAll(() => void first.dataSource.subscribers.pop());

    const touchFence = (): Promise<unknown> =>
      elsewhere(() => second.dataSource.query(`UPDATE lock_fence SET token = token`));
    const enter = (manager: EntityManager): Promise<unknown> => {
      entered += 1;
      return manager.increment(Invoice, { id: '1' }, 'paid', 1);
    };

    for (const isolation of ['REPEATABLE READ', 'SERIALIZABLE'] as const) {
      it(`begins anew with a new snapshot, once, and then enters the work (${isolation})`, async () => {
        beforePin = async (attempt) => attempt === 1 && touchFence();
        await first.locks.withLock('invoice:1', () => fencedTransaction(enter, { isolation }));
        expect({ attempts, entered }).toEqual({ attempts: 2, entered: 1 });
        expect(await read()).toMatchObject({ paid: 1 });
      });

      it(`says FENCED_OUT when a successor has raised it meanwhile (${isolation})`, async () => {
        const stale = await owners.hold(first, 'invoice:1');
        const successors: Lease[] = [];
        beforePin = async (attempt) => attempt === 1 && successors.push(await owners.takeOver(stale, second));
        const work = stale.run(() => fencedTransaction(enter, { isolation }));
        await expect(work).rejects.toMatchObject({ code: 'FENCED_OUT' });
        expect({ attempts, entered }).toEqual({ attempts: 2, entered: 0 });
        await Promise.all([stale, ...successors].map((lease) => lease.release()));
      });

      it(`gives up at the second time, with the error of the database (${isolation})`, async () => {
        beforePin = touchFence;
        const work = first.locks.withLock('invoice:1', () => fencedTransaction(enter, { isolation }));
        await expect(work).rejects.toMatchObject({ driverError: { code: '40001' } });
        expect({ attempts, entered }).toEqual({ attempts: 2, entered: 0 });
      });

      it(`throws when it is a part of a transaction, whose snapshot nobody can renew (${isolation})`, async () => {
        beforePin = touchFence;
        const work = first.locks.withLock('invoice:1', () =>
          first.dataSource.transaction(isolation, () => fencedTransaction(enter)),
        );
        await expect(work).rejects.toMatchObject({ driverError: { code: '40001' } });
        expect({ attempts, entered }).toEqual({ attempts: 1, entered: 0 });
      });
    }

    it('does not run the work twice when it is the work that fails with 40001', async () => {
      const work = first.locks.withLock('invoice:1', () =>
        fencedTransaction(
          async (manager) => {
            entered += 1;
            await manager.query('SELECT 1');
            await unfencedElsewhere(second);
            await manager.increment(Invoice, { id: '1' }, 'paid', 1);
          },
          { isolation: 'REPEATABLE READ' },
        ),
      );
      await expect(work).rejects.toMatchObject({ driverError: { code: '40001' } });
      expect({ attempts, entered }).toEqual({ attempts: 1, entered: 1 });
    });

    it('enters at once at READ COMMITTED, where each statement has a snapshot of its own', async () => {
      beforePin = touchFence;
      const isolation = 'READ COMMITTED';
      await first.locks.withLock('invoice:1', () => fencedTransaction(enter, { isolation }));
      expect({ attempts, entered }).toEqual({ attempts: 1, entered: 1 });
    });
  });

  it('throws a stopped owner out of its transaction when its lease would be over, and not before', async () => {
    const limit = async (manager: EntityManager): Promise<number> => {
      const rows = await manager.query(
        `SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'`,
      );
      return Number((rows as { setting: string }[])[0]?.setting);
    };
    const isThere = async (pid: number | undefined): Promise<boolean> => {
      const sessions: unknown[] = await second.dataSource.query(
        'SELECT 1 FROM pg_stat_activity WHERE pid = $1',
        [pid],
      );
      return sessions.length > 0;
    };
    await first.locks.withLock('invoice:1', { ttlMs: 60_000 }, (lease) =>
      fencedTransaction(async (manager) => {
        expect(await limit(manager)).toBeGreaterThanOrEqual(Math.floor(lease.remainingMs));
        expect(await limit(manager)).toBeLessThanOrEqual(60_000);
      }),
    );
    expect(await limit(first.dataSource.manager)).toBe(0);
    await first.locks.withLock('invoice:1', { ttlMs: 60_000 }, () =>
      first.dataSource.transaction(async (manager) => {
        await fencedTransaction(async () => undefined);
        expect(await limit(manager)).toBeGreaterThan(0); // the outer one keeps the successor out just as long
      }),
    );
    const lease = await owners.hold(first, 'invoice:1');
    const stopped = lease.run(() =>
      fencedTransaction(async (manager) => {
        await manager.update(Invoice, { id: '1' }, { paid: 1 });
        const [session] = await manager.query<{ pid: number }[]>('SELECT pg_backend_pid() AS pid');
        await manager.query('SET LOCAL idle_in_transaction_session_timeout = 100');
        while (await isThere(session?.pid)) await sleep(10);
        await manager.update(Invoice, { id: '1' }, { paid: 2 });
      }),
    );
    await expect(stopped).rejects.toThrow(/idle-in-transaction|Connection terminated|already released/);
    await lease.release();
    expect(await read()).toMatchObject({ paid: 0 });
  });

  it('keeps the guard: a snapshot from before the successor cannot commit (C134)', async () => {
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
    expect(await read()).toMatchObject({ paid: 2 });
  });
});
