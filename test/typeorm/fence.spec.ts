import { guardDataSource, unfenced } from 'nestjs-distributed-lock/typeorm';

import { LockService, memoryStore } from 'nestjs-distributed-lock';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { empty, Owners, seed, withOwners, type Owner } from './owners.js';
import { OWN_LIMITS_MS } from './waiting-sessions.js';

describeOnEachDatabase('The fence', (start, dialect) => {
  /** MySQL's usual collations do not. */
  const tellsCaseApart = dialect !== 'mysql';
  let owners: Owners;
  let owner: Owner;
  let other: Owner;
  let lastId = 0;
  let id: string;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    owner = await owners.add();
    other = await owners.add();
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(owner);
    await seed(owner, id);
  });
  afterAll(() => owners.stop());

  const rowOf = async (key: string): Promise<unknown> => {
    const rows = await owner.dataSource.query<Record<string, unknown>[]>('SELECT * FROM lock_fence');
    const row = rows.find((each) => String(each['key']) === key);
    if (!row) return undefined;
    const { store_id: store, owner_id: ownerId, token } = row;
    return { key, token: Number(token), owner_id: String(ownerId), store_id: String(store) };
  };
  const here = (): string => `${owner.dataSource.driver.escape('key')} = 'invoice:${id}'`;
  const lift = (token: number, storeId = 'memory:default'): Promise<unknown> =>
    owner.dataSource.query(`UPDATE lock_fence SET token = ${token}, store_id = '${storeId}' WHERE ${here()}`);

  it('carries the token and the owner before the body begins, and is told of', async () => {
    owner.events.length = 0;
    await owner.locks.withLock(`invoice:${id}`, async ({ key, token, ownerId, storeId, template, store }) => {
      expect(await rowOf(key)).toEqual({ key, token, owner_id: ownerId, store_id: storeId });
      expect(owner.events).toContainEqual({ type: 'fence-raised', key, template, store, token });
    });
  });

  it('stays after the release, and rises with each owner', async () => {
    const tokens: number[] = [];
    for (const each of [owner, other, owner])
      await each.locks.withLock(`invoice:${id}`, ({ token }) => void tokens.push(token));
    expect(await rowOf(`invoice:${id}`)).toMatchObject({ token: tokens[2] });
    expect([...tokens].sort((a, b) => a - b)).toEqual(tokens);
  });

  it('keeps nothing for keys that protect no row here', async () => {
    await owner.locks.withLock('nightly-report', async () => undefined);
    await owner.locks.withLock('invoice:a:b', async () => undefined);
    expect(await rowOf('nightly-report')).toBeUndefined();
    expect(await rowOf('invoice:a:b')).toBeUndefined();
  });

  it('lets nobody in whose token is behind it: the body is not entered, the lock is given back', async () => {
    await owner.locks.withLock(`invoice:${id}`, async () => undefined);
    await lift(2 ** 53 - 1);
    let entered = false;
    const call = owner.locks.withLock(`invoice:${id}`, async () => void (entered = true));
    await expect(call).rejects.toMatchObject({ code: 'FENCED_OUT', key: `invoice:${id}` });
    expect(entered).toBe(false);
    expect(owner.locks.busy).toBe(false);
    const next = await owners.store.tryAcquire({ key: `invoice:${id}`, ownerId: 'ff', ttlMs: 10 }, 100);
    expect(next.kind).toBe('granted');
  });

  it('lets nobody in whose token is equal and whose owner is another', async () => {
    const lease = await owners.hold(owner, `invoice:${id}`);
    await owner.dataSource.query(`UPDATE lock_fence SET owner_id = 'another' WHERE ${here()}`);
    const write = lease.run(() => owner.repository(Invoice).update({ id }, { paid: 1 }));
    await expect(write).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await lease.release();
  });

  it('is not handed over to another store by the way, and names both', async () => {
    await owner.locks.withLock(`invoice:${id}`, async () => undefined);
    await lift(1, 'redis:default');
    const call = owner.locks.withLock(`invoice:${id}`, async () => undefined);
    await expect(call).rejects.toMatchObject({
      code: 'FENCED_OUT',
      message: expect.stringMatching(/"redis:default".*"memory:default".*handed over.*on purpose/s) as string,
    });
  });

  it('takes keys of every kind: long ones, other alphabets, quotes, colons and backslashes', async () => {
    const ids = [
      `it's "quoted" \\ back`,
      'Ωμέγα/請求書 №1',
      'a:b?$1 :name',
      'x'.repeat(700),
      "';--",
      '%41',
      'A',
      ...(tellsCaseApart ? ['a'] : []),
    ];
    await unfenced('rows', () => owner.repository(Invoice).insert(ids.map((each) => ({ id: each }))));
    for (const each of ids) {
      const key = `invoice:${encodeURIComponent(each).replace(/[!~*'()]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)}`;
      await owner.locks.withLock(key, async () => {
        const invoice = await owner.repository(Invoice).findOneByOrFail({ id: each });
        await owner.repository(Invoice).save(Object.assign(invoice, { status: 'SETTLED' }));
        await owner.repository(Invoice).update({ id: each }, { paid: 1 });
      });
    }
    expect(await owner.repository(Invoice).countBy({ status: 'SETTLED', paid: 1 })).toBe(ids.length);
  });

  it('does not take another case for the same key, whatever the collation of its column finds equal', async () => {
    const ids = ['case-A', ...(tellsCaseApart ? ['case-a'] : [])];
    await unfenced('rows', () => owner.repository(Invoice).insert(ids.map((each) => ({ id: each }))));
    await owner.locks.withLock('invoice:case-a', async () => {
      const wrong = owner.repository(Invoice).update({ id: 'case-A' }, { paid: 1 });
      await expect(wrong).rejects.toMatchObject({ code: 'FENCED_OUT' });
      const right = owner.repository(Invoice).update({ id: 'case-a' }, { paid: 1 });
      if (tellsCaseApart) await right;
      else await expect(right).rejects.toMatchObject({ code: 'FENCED_OUT' }); // it finds case-A
    });
  });

  it('can be left to the first write: until then the predecessor is not stopped, from then on it is', async () => {
    const lazy = await owners.add({ fenceOnAcquire: false });
    const late = await owners.add({ fenceOnAcquire: false });
    const stale = await owners.hold(lazy, `invoice:${id}`);
    const pay = (by: Owner, paid: number) => by.repository(Invoice).update({ id }, { paid });
    await stale.run(() => pay(lazy, 1));
    const current = await owners.takeOver(stale, late);
    await stale.run(() => pay(lazy, 2));
    await current.run(async () => {
      await expect(
        late.dataSource.transaction(async (manager) => {
          await manager.update(Invoice, { id }, { paid: 3 });
          throw new Error('rolled back, and the fence with it');
        }),
      ).rejects.toThrow('rolled back');
      await late.repository(InvoiceLine).insert([1, 2, 3].map((n) => ({ invoice: { id }, text: `${n}` })));
      await pay(late, 4);
    });
    await expect(stale.run(() => pay(lazy, 5))).rejects.toMatchObject({ code: 'FENCED_OUT' });
    expect(await owner.repository(Invoice).findOneByOrFail({ id })).toMatchObject({ paid: 4 });
    await current.release();
    await stale.release();
  });

  it('learns of a hold that is older than the guard of a DataSource', async () => {
    const locks = new LockService({ stores: { default: owners.store } });
    await locks.withLock(`invoice:${id}`, async (lease) => {
      const dataSource = await owners.database.connect({ entities: [Invoice, InvoiceLine, Label] });
      guardDataSource(dataSource, locks);
      await dataSource.getRepository(Invoice).update({ id }, { paid: 1 });
      expect(await rowOf(`invoice:${id}`)).toMatchObject({ token: lease.token });
      await dataSource.destroy();
    });
    await locks.close();
  });

  it('is away: the work does not start and the lock is given back, within its time', async () => {
    await owner.locks.withLock(`invoice:${id}`, async () => undefined);
    const plain = await owners.add({ plain: true });
    const blocking = plain.dataSource.createQueryRunner();
    await blocking.query(dialect === 'sqlite' ? 'BEGIN IMMEDIATE' : 'BEGIN');
    await blocking.query(`UPDATE lock_fence SET token = token WHERE ${here()}`);
    const sentAtMs = performance.now();
    const call = owner.locks.withLock(`invoice:${id}`, { ttlMs: 900 }, async () => undefined);
    await expect(call).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
    expect(performance.now() - sentAtMs).toBeLessThan(OWN_LIMITS_MS);
    await blocking.query('ROLLBACK');
    await blocking.release();
    expect(await owner.locks.withLock(`invoice:${id}`, async () => 'again')).toBe('again');
  });

  it('rises to the highest of many owners that come at once, and never falls', async () => {
    const tokens = await Promise.all(
      Array.from({ length: 30 }, (_, i) =>
        (i % 2 ? owner : other).locks.withLock(`invoice:${id}`, { waitMs: 60_000 }, async ({ token }) => {
          expect(await rowOf(`invoice:${id}`)).toMatchObject({ token });
          return token;
        }),
      ),
    );
    expect(await rowOf(`invoice:${id}`)).toMatchObject({ token: Math.max(...tokens) });
  });
});

describeOnEachDatabase('Without its table, the fence', (start) => {
  it('says at the first lock what to call', async () => {
    await withOwners(start, async (owners) => {
      const owner = await owners.add();
      await owner.dataSource.query('DROP TABLE lock_fence');
      const call = owner.locks.withLock('invoice:1', async () => undefined);
      await expect(call).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining('createLockTables(dataSource)') as string,
      });
      expect(owner.locks.busy).toBe(false);
    });
  });
});

describeOnEachDatabase('With tenants, the fence', (start) => {
  it("belongs to one tenant: another tenant's hold on the same key protects nothing here", async () => {
    await withOwners(start, async (owners) => {
      let tenant: string | undefined = 'red';
      const dataSource = await owners.database.connect({ entities: [Invoice, InvoiceLine, Label] });
      const locks = new LockService({
        stores: { default: memoryStore() },
        namespace: 'app',
        scope: () => tenant,
      });
      guardDataSource(dataSource, locks);
      await unfenced('rows', () => dataSource.getRepository(Invoice).insert({ id: '1' }));
      const update = (): Promise<unknown> =>
        dataSource.getRepository(Invoice).update({ id: '1' }, { paid: 1 });
      await locks.withLock('invoice:1', async () => {
        await update();
        tenant = 'blue';
        await expect(update()).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
        tenant = undefined;
        await expect(update()).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
        await locks.withLock('invoice:1', { scope: 'global' }, update);
      });
      const keys = await dataSource.query<{ key: unknown }[]>('SELECT * FROM lock_fence ORDER BY 1');
      expect(keys.map(({ key }) => String(key))).toEqual(['app:~:invoice:1', 'app:~red:invoice:1']);
      await locks.close();
      await dataSource.destroy();
    });
  });
});
