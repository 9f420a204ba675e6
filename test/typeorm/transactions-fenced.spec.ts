import type { EntityManager } from 'typeorm';

import { memoryStore, type Lease, type LockStore } from 'nestjs-distributed-lock';
import { ManualClock } from 'nestjs-distributed-lock/testing';
import { fencedTransaction, guardDataSource } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { elsewhere, empty, Owners, seed, withOwners, type Owner } from './owners.js';
import { OWN_LIMITS_MS, untilSessionsWait } from './waiting-sessions.js';

describeOnEachDatabase('fencedTransaction()', (start, dialect) => {
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
    const take = async (): Promise<Lease> => {
      const next = await second.locks.acquire(`invoice:${id}`, { ttlMs: 60_000 });
      order.push('successor');
      return next;
    };
    let successor: Promise<Lease> | undefined;
    await lease.run(() =>
      fencedTransaction(async (manager) => {
        await settle(manager);
        successor = elsewhere(take);
        await elsewhere(() => untilSessionsWait(dialect, second.dataSource, 1));
        order.push('committing');
      }),
    );
    await (await successor)?.release();
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
        expect(performance.now() - sentAtMs).toBeLessThan(OWN_LIMITS_MS);
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

  it('fences the transaction that it becomes a part of, also one that began before its chain knew of the lock', async () => {
    const lease = await owners.hold(first, `invoice:${id}`);
    const outer = first.dataSource.transaction(async (manager) => {
      await manager.insert(Label, { name: `outer ${id}` });
      await lease.run(() => fencedTransaction(settle));
      lease.lose('taken-over');
    });
    await expect(outer).rejects.toMatchObject({ code: 'LEASE_LOST' });
    expect(await second.repository(Label).countBy({ name: `outer ${id}` })).toBe(0);
    expect((await read()).status).toBe('READY');
  });

  it('dooms the transaction that a stale owner calls it in, also when the refusal is swallowed', async () => {
    const stale = await owners.hold(first, `invoice:${id}`);
    const current = await owners.takeOver(stale, second);
    const outer = stale.run(() =>
      first.dataSource.transaction(async (manager) => {
        await manager.insert(Label, { name: `outer ${id}` });
        await expect(fencedTransaction(settle)).rejects.toMatchObject(fencedOut);
      }),
    );
    await expect(outer).rejects.toMatchObject(fencedOut);
    expect(await second.repository(Label).countBy({ name: `outer ${id}` })).toBe(0);
    await current.release();
  });

  it('is asked for a level that the open transaction does not have: refused, the work does not run', async () => {
    let entered = 0;
    const work = async (): Promise<unknown> => (entered += 1);
    await first.locks.withLock(`invoice:${id}`, () =>
      first.dataSource.transaction('SERIALIZABLE', async () => {
        await fencedTransaction(work, { isolation: 'SERIALIZABLE' });
        await expect(fencedTransaction(work, { isolation: 'READ UNCOMMITTED' })).rejects.toMatchObject({
          code: 'LOCK_CONFIG_INVALID',
        });
      }),
    );
    expect(entered).toBe(1);
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
      await expect(fencedTransaction(nothing, { dataSource: plain.dataSource })).rejects.toMatchObject(wrong);
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

describeOnEachDatabase('fencedTransaction() while renewals go unanswered', (start) => {
  it('does not commit in the last third of the lease, and says that the outcome of the lease is not known', async () => {
    const honest = memoryStore();
    const silent: LockStore = {
      kind: honest.kind,
      minTtlMs: honest.minTtlMs,
      keepsReleasedKeys: true,
      tryAcquire: (claim, timeoutMs) => honest.tryAcquire(claim, timeoutMs),
      renew: () => Promise.reject(new Error('no answer')),
      release: (request, timeoutMs) => honest.release(request, timeoutMs),
      close: () => honest.close(),
    };
    const work = async (owners: Owners): Promise<void> => {
      const clock = new ManualClock();
      const owner = await owners.add({ clock });
      await seed(owner, '1');
      const lease = await owner.locks.acquire('invoice:1', { ttlMs: 60_000 });
      const committing = lease.run(() =>
        fencedTransaction(async (manager) => {
          await manager.update(Invoice, { id: '1' }, { status: 'SETTLED' });
          await clock.advance(41_000);
          expect(lease.remainingMs).toBeGreaterThan(0);
        }),
      );
      await expect(committing).rejects.toMatchObject({ code: 'LEASE_UNCERTAIN' });
      await lease.release();
      expect(await owner.repository(Invoice).findOneByOrFail({ id: '1' })).toMatchObject({ status: 'READY' });
    };
    await withOwners(start, work, undefined, silent);
  });
});
