import { setTimeout as pause } from 'node:timers/promises';

import { LockService, type LockStore } from 'nestjs-distributed-lock';
import {
  createLockTables,
  postgresAdvisoryStore,
  typeormStore,
  withAdvisoryLock,
} from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { until } from '../servers/eventually.js';
import { freePort } from '../servers/free-port.js';
import { describeWithServers, startPostgres, type PostgresServer } from '../servers/index.js';
import { expectSoon } from './expect-soon.js';
import { processNumberOfPostgres, startPooler } from './pooler.js';

const PATIENCE_MS = 30_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 200_000 };

describeWithServers(['postgres'], 'the advisory locks in PostgreSQL', () => {
  let server: PostgresServer;
  let raw: DataSource;
  let stores: LockStore[] = [];

  beforeAll(async () => {
    server = await startPostgres();
    raw = await dataSource().initialize();
    await createLockTables(raw);
  });
  afterEach(async () => {
    await Promise.all(stores.map((store) => store.close()));
    stores = [];
    await raw.query('TRUNCATE lock_lease');
    await until('closed stores hold nothing', async () => (await holders()).length === 0);
  });
  afterAll(async () => {
    await raw.destroy();
    await server.stop();
  });

  it('are not taken through a pooler, which may give each statement to another session (C002, C023)', async () => {
    const pooler = await startPooler(server.port, processNumberOfPostgres);
    const behind = storeOn(
      dataSource({ url: undefined, host: '127.0.0.1', port: pooler.port, username: 'postgres' }),
    );
    await expect(behind.open?.()).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('typeormStore()'),
    });
    await expect(behind.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/pooler/);
    expect(await holders()).toEqual([]);
    await behind.close();
    await pooler.stop();
  });

  it('say at boot that nothing answers, and that the table is missing', async () => {
    const nowhere = storeOn(dataSource({ url: undefined, host: '127.0.0.1', port: await freePort() }));
    await expect(nowhere.open?.()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    const missing = postgresAdvisoryStore({ dataSource: dataSource(), table: 'missing' });
    stores.push(missing);
    await expect(missing.open?.()).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('createLockTables(dataSource)'),
    });
  });

  it('are granted once to thirty calls on one connection, and none is left behind (C110, C130)', async () => {
    const store = storeOn(dataSource({ poolSize: 3 }));
    const claims = Array.from({ length: 30 }, (_, i) => ({ ...claim, ownerId: `owner ${i}` }));
    const answers = await Promise.all(claims.map((each) => store.tryAcquire(each, PATIENCE_MS)));
    expect(answers.filter(({ kind }) => kind === 'granted')).toHaveLength(1);
    expect(await holders()).toHaveLength(1);
    const released = await Promise.all(
      claims.map((each) => store.release({ ...each, keepForMs: 0 }, PATIENCE_MS)),
    );
    expect(released.filter((answer) => answer === 'released')).toHaveLength(1);
    expect(await holders()).toEqual([]);
  });

  it('take no connection of a pool that is used up, and one for all: ten locked transactions pass a pool of one (C052, C094)', async () => {
    const small = await dataSource({ poolSize: 1 }).initialize();
    const service = serviceOn(storeOn(small));
    const pay = (id: number): Promise<unknown> =>
      service.withLock(`invoice:${id}`, () => small.transaction((manager) => manager.query('SELECT 1')));
    await Promise.all(Array.from({ length: 10 }, (_, id) => pay(id)));
    expect(await sessions()).toBe(1);
    await service.close();
    await small.destroy();
  });

  it('wake a waiter in another process when they are given back, without a try in between', async () => {
    const [holder, listening] = [serviceOn(storeOn(dataSource())), storeOn(dataSource())];
    const waiter = serviceOn(listening);
    const attempts: number[] = [];
    waiter.events.subscribe((event) => {
      if (event.type === 'acquired' && event.key === 'k') attempts.push(event.attempts);
    });
    await (await waiter.acquire('warm')).release(); // it listens on its session
    const lease = await holder.acquire('k', { ttlMs: 200_000 });
    const watch = listening.watch?.('k', () => undefined); // which its service shares
    await until('it hears', () => watch?.hears === true);
    const waiting = waiter.acquire('k', { waitMs: 60_000 });
    await pause(500);
    await lease.release();
    await expectSoon(waiting, 1_000, holder); // a try without a wake-up comes after 1 to 2 s
    expect(attempts[0]).toBeLessThanOrEqual(3); // the first, the one when it began to listen, the last
    watch?.stop();
    await Promise.all([holder.close(), waiter.close()]);
  });

  it('outlast their connection: the row keeps others out, and the next renewal takes the lock again (C034)', async () => {
    const [store, other] = [storeOn(dataSource()), storeOn(dataSource())];
    const granted = await store.tryAcquire(claim, PATIENCE_MS);
    await raw.query('SELECT pg_terminate_backend($1)', await holders());
    await until('the lock ends with its connection', async () => (await holders()).length === 0);
    expect(await other.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS)).toMatchObject({ kind: 'busy' });
    expect(await store.renew([claim], PATIENCE_MS)).toEqual(['renewed']);
    expect(await holders()).toHaveLength(1);
    expect(await store.tryAcquire(claim, PATIENCE_MS)).toEqual(granted);
  });

  it('stay with somebody outside who asked for the same number first, who is waited for and not ended', async () => {
    const store = storeOn(dataSource());
    const number = await numberOf(store, claim.key);
    const outsider = await dataSource().initialize();
    const session = outsider.createQueryRunner();
    await session.query('SELECT pg_advisory_lock($1)', [number]);
    const late = { ...claim, ttlMs: 600 };
    await pause(600); // silent for long enough to be taken for stopped
    expect(await store.tryAcquire(late, PATIENCE_MS)).toEqual({ kind: 'busy', retryAfterMs: 250 });
    expect((await session.query('SELECT pg_advisory_unlock($1) AS freed', [number]))[0]).toEqual({
      freed: true,
    });
    expect(await store.tryAcquire(late, PATIENCE_MS)).toMatchObject({ kind: 'granted' });
    await session.release();
    await outsider.destroy();
  });

  it('count as lost when somebody outside got the number while the connection was away', async () => {
    const store = storeOn(dataSource());
    const number = await numberOf(store, claim.key);
    await store.tryAcquire(claim, PATIENCE_MS);
    const outsider = await dataSource().initialize();
    const session = outsider.createQueryRunner();
    const taken = session.query('SELECT pg_advisory_lock($1)', [number]);
    await raw.query('SELECT pg_terminate_backend($1)', await holders());
    await taken;
    expect(await store.renew([claim], PATIENCE_MS)).toEqual(['lost']);
    await session.query('SELECT pg_advisory_unlock($1)', [number]);
    await session.release();
    await outsider.destroy();
  });

  it('and the lease table keep each other out on one table, with one order of tokens', async () => {
    const [advisory, table] = [storeOn(dataSource()), typeormStore({ dataSource: raw })];
    const tokens: number[] = [];
    for (const [store, next] of [
      [advisory, table],
      [table, advisory],
      [advisory, table],
    ] as const) {
      const answer = await store.tryAcquire({ ...claim, key: 'moved' }, PATIENCE_MS);
      if (answer.kind === 'granted') tokens.push(answer.token);
      const refused = await next.tryAcquire({ ...claim, key: 'moved', ownerId: 'b' }, PATIENCE_MS);
      expect(refused).toMatchObject({ kind: 'busy' });
      await store.release({ key: 'moved', ownerId: claim.ownerId, keepForMs: 0 }, PATIENCE_MS);
    }
    expect(tokens).toHaveLength(3);
    expect(tokens).toEqual([...tokens].sort((a, b) => a - b));
    await table.close();
  });

  it('and withAdvisoryLock() have numbers of their own: it may be called under the lock of the same key', async () => {
    const service = serviceOn(storeOn(dataSource()));
    const work = (): Promise<string> =>
      withAdvisoryLock('k', () => Promise.resolve('done'), { dataSource: raw, timeoutMs: 20_000 });
    expect(await service.withLock('k', {}, work)).toBe('done');
    await service.close();
  });

  it('need PostgreSQL', () => {
    const other = new DataSource({ type: 'mariadb' });
    expect(() => postgresAdvisoryStore({ dataSource: other })).toThrow(/not "mariadb"/);
  });

  function dataSource(options: object = {}): DataSource {
    const poolErrorHandler = (): void => undefined; // sessions are ended
    return new DataSource({ type: 'postgres', url: server.url, poolErrorHandler, ...options });
  }

  function storeOn(source: DataSource): LockStore {
    const store = postgresAdvisoryStore({ dataSource: source });
    stores.push(store);
    return store;
  }

  async function holders(): Promise<number[]> {
    const sql = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted`;
    return (await raw.query<{ pid: number }[]>(sql)).map(({ pid }) => pid);
  }

  async function sessions(): Promise<number> {
    const sql = `SELECT pid FROM pg_stat_activity WHERE application_name = 'nestjs-distributed-lock session'`;
    return (await raw.query<unknown[]>(sql)).length;
  }

  /** The number of the lock, seen while it is held. */
  async function numberOf(store: LockStore, key: string): Promise<string> {
    await store.tryAcquire({ key, ownerId: 'first', ttlMs: 10_000 }, PATIENCE_MS);
    const sql = `SELECT (classid::bigint << 32 | objid::bigint)::text AS number FROM pg_locks WHERE locktype = 'advisory'`;
    const [row] = await raw.query<{ number: string }[]>(sql);
    await store.release({ key, ownerId: 'first', keepForMs: 0 }, PATIENCE_MS);
    return row?.number ?? '';
  }
});

function serviceOn(store: LockStore): LockService {
  return new LockService({ stores: { default: store } });
}
