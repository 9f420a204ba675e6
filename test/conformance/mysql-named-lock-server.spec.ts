import { setTimeout as pause } from 'node:timers/promises';

import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { createLockTables, mysqlNamedLockStore, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { namedLock } from '../faults/session-lock-kinds.js';
import { until } from '../servers/eventually.js';
import { freePort } from '../servers/free-port.js';
import { describeOnMySqlKin, type TestServer } from '../servers/index.js';
import { expectSoon } from './expect-soon.js';
import { startPooler, threadNumberOfMysql } from './pooler.js';

const PATIENCE_MS = 30_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 200_000 };

describeOnMySqlKin('the named locks in', ({ kind, start }) => {
  let server: TestServer;
  let raw: DataSource;
  let stores: LockStore[] = [];

  beforeAll(async () => {
    server = await start();
    raw = await dataSource().initialize();
    await createLockTables(raw);
  });
  afterEach(async () => {
    await Promise.all(stores.map((store) => store.close()));
    stores = [];
    await raw.query('TRUNCATE lock_lease');
    await until('closed stores hold nothing', async () => (await holder()) === null);
  });
  afterAll(async () => {
    await raw.destroy();
    await server.stop();
  });

  it('outlive a wait_timeout that is shorter than the silence between two renewals (C034)', async () => {
    await raw.query('SET GLOBAL wait_timeout = 1');
    try {
      const [store, other] = [storeOn(), storeOn()];
      await store.tryAcquire(claim, PATIENCE_MS);
      const before = await holder();
      await pause(2_500);
      expect(await holder()).toBe(before);
      expect(await other.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS)).toMatchObject({ kind: 'busy' });
      expect(await store.renew([claim], PATIENCE_MS)).toEqual(['renewed']);
    } finally {
      await raw.query('SET GLOBAL wait_timeout = 28800');
    }
  });

  it('outlast their connection: the row keeps others out, and the next renewal takes the lock again (C034)', async () => {
    const [store, other] = [storeOn(), storeOn()];
    const granted = await store.tryAcquire(claim, PATIENCE_MS);
    await raw.query(`KILL ${await holder()}`);
    await until('the lock ends with its connection', async () => (await holder()) === null);
    expect(await other.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS)).toMatchObject({ kind: 'busy' });
    await until('it is renewed', async () => (await store.renew([claim], PATIENCE_MS))[0] === 'renewed');
    expect(await holder()).not.toBeNull();
    expect(await store.tryAcquire(claim, PATIENCE_MS)).toEqual(granted);
  });

  it('are granted once to thirty calls on one connection, and none is left behind (C110, C130)', async () => {
    const store = storeOn();
    const claims = Array.from({ length: 30 }, (_, i) => ({ ...claim, ownerId: `owner ${i}` }));
    const answers = await Promise.all(claims.map((each) => store.tryAcquire(each, PATIENCE_MS)));
    expect(answers.filter(({ kind }) => kind === 'granted')).toHaveLength(1);
    const released = await Promise.all(
      claims.map((each) => store.release({ ...each, keepForMs: 0 }, PATIENCE_MS)),
    );
    expect(released.filter((answer) => answer === 'released')).toHaveLength(1);
    expect(await holder()).toBeNull();
  });

  it('are waited for by the server, which wakes waiters in other processes, and leave no connection behind', async () => {
    const [owner, waiter] = [serviceOn(storeOn()), serviceOn(storeOn())];
    const attempts: number[] = [];
    waiter.events.subscribe((event) => event.type === 'acquired' && attempts.push(event.attempts));
    const before = await connections();
    const lease = await owner.acquire(claim.key, { ttlMs: 200_000 });
    const waiting = waiter.acquire(claim.key, { waitMs: 60_000 });
    await pause(1_500);
    await lease.release();
    await expectSoon(waiting, 900, owner); // a try without a wake-up comes after 1 to 2 s
    expect(attempts[0]).toBeLessThan(20); // until the wait has begun, and two more
    await Promise.all([owner.close(), waiter.close()]);
    await until('their connections end', async () => (await connections()) <= before);
  });

  it('and the lease table keep each other out on one table, with one order of tokens', async () => {
    const [named, table] = [storeOn(), typeormStore({ dataSource: raw })];
    const tokens: number[] = [];
    for (const [store, next] of [
      [named, table],
      [table, named],
      [named, table],
    ] as const) {
      const answer = await store.tryAcquire(claim, PATIENCE_MS);
      if (answer.kind === 'granted') tokens.push(answer.token);
      expect(await next.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS)).toMatchObject({ kind: 'busy' });
      await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
    }
    expect(tokens).toHaveLength(3);
    expect(tokens).toEqual([...tokens].sort((a, b) => a - b));
    await table.close();
  });

  it('are not taken through a proxy that shares connections (C072)', async () => {
    const proxy = await startPooler(server.port, threadNumberOfMysql);
    const url = `mysql://root@127.0.0.1:${proxy.port}/app`;
    const store = storeOn(new DataSource({ type: kind, url }));
    await expect(store.open?.()).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('proxy'),
    });
    await store.close();
    await proxy.stop();
  });

  it('say at boot that nothing answers, and that the table is missing', async () => {
    const nowhere = storeOn(new DataSource({ type: kind, host: '127.0.0.1', port: await freePort() }));
    await expect(nowhere.open?.()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    const missing = mysqlNamedLockStore({ dataSource: dataSource(), table: 'missing' });
    stores.push(missing);
    await expect(missing.open?.()).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('createLockTables(dataSource)'),
    });
  });

  it('need MariaDB or MySQL', () => {
    const other = new DataSource({ type: 'postgres' });
    expect(() => mysqlNamedLockStore({ dataSource: other })).toThrow(/not "postgres"/);
  });

  function dataSource(): DataSource {
    return new DataSource({ type: kind, url: server.url });
  }

  function storeOn(source = dataSource()): LockStore {
    const store = mysqlNamedLockStore({ dataSource: source });
    stores.push(store);
    return store;
  }

  async function holder(): Promise<number | null> {
    const [row] = await raw.query<{ id: unknown }[]>('SELECT IS_USED_LOCK(?) AS id', [namedLock(claim.key)]);
    return row?.id == null ? null : Number(row.id);
  }

  async function connections(): Promise<number> {
    const [row] = await raw.query<{ n: unknown }[]>(
      'SELECT count(*) AS n FROM information_schema.PROCESSLIST',
    );
    return Number(row?.n);
  }
});

function serviceOn(store: LockStore): LockService {
  return new LockService({ stores: { default: store } });
}
