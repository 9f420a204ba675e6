import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { createLeaseTable, createLockTables, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { until } from '../servers/eventually.js';
import { freePort } from '../servers/free-port.js';
import { describeWithServers, startPostgres, type PostgresServer } from '../servers/index.js';

const PATIENCE_MS = 30_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 200_000 };

describeWithServers(['postgres'], 'the lease table in PostgreSQL', () => {
  let server: PostgresServer;
  let raw: DataSource;
  const stores: LockStore[] = [];

  beforeAll(async () => {
    server = await startPostgres();
    raw = await dataSource({ applicationName: 'raw' }).initialize();
    await createLockTables(raw);
  });
  afterEach(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
    await raw.query('TRUNCATE lock_lease');
  });
  afterAll(async () => {
    await raw.destroy();
    await server.stop();
  });

  function dataSource(options: object = {}): DataSource {
    return new DataSource({ type: 'postgres', url: server.url, ...options });
  }

  function storeOn(
    source: DataSource,
    options: { readonly table?: string; readonly poolSize?: number } = {},
  ): LockStore {
    const store = typeormStore({ dataSource: source, ...options });
    stores.push(store);
    return store;
  }

  it('is made once by many processes that start together, and left as it is afterwards', async () => {
    await Promise.all(Array.from({ length: 6 }, () => createLeaseTable(dataSource(), 'made_together')));
    const store = storeOn(dataSource(), { table: 'made_together' });
    await store.open?.();
    await store.tryAcquire(claim, PATIENCE_MS);
    await createLeaseTable(dataSource(), 'made_together');
    expect(await raw.query('SELECT owner_id FROM made_together')).toEqual([{ owner_id: 'a' }]);
  });

  it.each([
    ['missing', 'SELECT 1', /relation "odd" does not exist.*Call createLockTables\(dataSource\)/],
    [
      'without one of its columns',
      'CREATE TABLE odd (key text PRIMARY KEY)',
      /column "owner_id" does not exist/,
    ],
    [
      'with a time that depends on the time zone',
      'CREATE TABLE odd (key text PRIMARY KEY, owner_id text, token bigint, expires_at timestamp)',
      /column expires_at is timestamp without time zone, not timestamp with time zone/,
    ],
    [
      'with tokens that overflow',
      'CREATE TABLE odd (key text PRIMARY KEY, owner_id text, token integer, expires_at timestamptz)',
      /column token is integer, not bigint/,
    ],
    [
      'without its primary key',
      'CREATE TABLE odd (key text, owner_id text, token bigint, expires_at timestamptz)',
      /no unique or exclusion constraint/,
    ],
  ])('is refused at boot when it is %s', async (_what, ddl, message) => {
    await raw.query(ddl);
    try {
      const refusal = await refused(storeOn(dataSource(), { table: 'odd' }).open?.());
      expect(refusal).toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
      expect(String(refusal)).toMatch(message);
    } finally {
      await raw.query('DROP TABLE IF EXISTS odd');
    }
  });

  it('calls a database that does not answer unavailable, at boot as later', async () => {
    const nowhere = new DataSource({ type: 'postgres', host: '127.0.0.1', port: await freePort() });
    expect(await refused(storeOn(nowhere).open?.())).toMatchObject({ code: 'STORE_UNAVAILABLE' });
  });

  it('lies in the schema of the DataSource, also when its name needs quotes', async () => {
    await raw.query('CREATE SCHEMA "Bil""ling"');
    const billing = dataSource({ schema: 'Bil"ling' });
    await createLeaseTable(billing);
    const store = storeOn(billing);
    await store.open?.();
    await store.tryAcquire(claim, PATIENCE_MS);
    expect(await raw.query('SELECT key FROM "Bil""ling".lock_lease')).toEqual([{ key: claim.key }]);
    expect(await raw.query('SELECT key FROM lock_lease')).toEqual([]);
  });

  it.each(['', 'a b', 'a"; DROP TABLE lock_lease; --', 'other.table', 'x'.repeat(64)])(
    'is not called %j',
    (table) => {
      expect(() => storeOn(dataSource(), { table })).toThrow(
        /write a name of letters, digits and underscores/,
      );
    },
  );

  it('keeps its rows, with readable keys and the last token, and frees them for good', async () => {
    const store = storeOn(dataSource());
    const answer = await store.tryAcquire(claim, PATIENCE_MS);
    await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
    const sql = `SELECT key, owner_id, token::text, expires_at = '-infinity' AS free FROM lock_lease`;
    const token = answer.kind === 'granted' ? String(answer.token) : '';
    expect(await raw.query(sql)).toEqual([{ key: claim.key, owner_id: null, token, free: true }]);
  });

  it('refuses to count beyond what a double holds, rather than repeat a token (C040, C114)', async () => {
    await raw.query(`INSERT INTO lock_lease VALUES ($1, NULL, 9007199254740990, '-infinity')`, [claim.key]);
    const store = storeOn(dataSource({ parseInt8: true }));
    expect(await store.tryAcquire(claim, PATIENCE_MS)).toEqual({
      kind: 'granted',
      token: 9_007_199_254_740_991,
    });
    await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
    await expect(store.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(
      /the token 9007199254740992, which is none/,
    );
  });

  it('is read alike in every time zone, of the session and of the process (C013)', async () => {
    const zones = ['America/New_York', 'Asia/Seoul', 'Europe/Lisbon'];
    const inZones = zones.map((zone) => storeOn(dataSource({ extra: { options: `-c timezone=${zone}` } })));
    const processZone = process.env['TZ'];
    try {
      for (const [i, holder] of inZones.entries()) {
        process.env['TZ'] = zones[i];
        const held = { ...claim, key: `zone ${i}` };
        await holder.tryAcquire(held, PATIENCE_MS);
        for (const other of inZones) {
          process.env['TZ'] = zones[(i + 1) % zones.length];
          const answer = await other.tryAcquire({ ...held, ownerId: 'b' }, PATIENCE_MS);
          const remainingMs = answer.kind === 'busy' ? (answer.retryAfterMs ?? 0) : 0;
          expect(remainingMs).toBeGreaterThan(claim.ttlMs / 2);
          expect(remainingMs).toBeLessThanOrEqual(claim.ttlMs);
        }
      }
    } finally {
      if (processZone === undefined) delete process.env['TZ'];
      else process.env['TZ'] = processZone;
    }
  });

  it.each([3 * 60_000, -3 * 60_000])('ignores a client clock that is %d ms off (C048)', async (skewMs) => {
    const [right, wrong] = [storeOn(dataSource()), storeOn(dataSource())];
    const first = await right.tryAcquire(claim, PATIENCE_MS);
    const now = Date.now;
    const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + skewMs);
    try {
      expect(await wrong.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS)).toMatchObject({ kind: 'busy' });
      await right.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
      const second = await wrong.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS);
      if (first.kind !== 'granted' || second.kind !== 'granted') throw new Error('both should be granted');
      expect(second.token - first.token).toBeGreaterThan(0);
      expect(second.token - first.token).toBeLessThan(60_000_000); // microseconds of the server's clock
    } finally {
      clock.mockRestore();
    }
  });

  it('takes no connection of a pool that is used up: ten locked transactions pass through a pool of one (C052, C094)', async () => {
    const small = await dataSource({ poolSize: 1 }).initialize();
    const service = new LockService({ stores: { default: storeOn(small) } });
    const pay = (id: number): Promise<unknown> =>
      service.withLock(`invoice:${id}`, () => small.transaction((manager) => manager.query('SELECT 1')));
    await Promise.all(Array.from({ length: 10 }, (_, id) => pay(id)));
    await service.close();
    await small.destroy();
  });

  it('opens no more connections than it was given, and closes those and no others', async () => {
    const users = await dataSource({ applicationName: 'users' }).initialize();
    await users.query('SELECT 1');
    const store = storeOn(users, { poolSize: 2 });
    const claims = Array.from({ length: 50 }, (_, i) => ({ ...claim, key: `k${i}` }));
    await Promise.all(claims.map((each) => store.tryAcquire(each, PATIENCE_MS)));
    expect(await connectionsOf('users')).toBe(3);
    await store.close();
    await expect(store.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/closed/);
    await until('its connections end', async () => (await connectionsOf('users')) === 1);
    await users.destroy();
  });

  it('goes on when an administrator ends all its sessions', async () => {
    const store = storeOn(dataSource({ applicationName: 'ended' }));
    await store.tryAcquire(claim, PATIENCE_MS);
    await raw.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ended'`,
    );
    await until('its sessions end', async () => (await connectionsOf('ended')) === 0);
    expect(await store.renew([claim], PATIENCE_MS)).toEqual(['renewed']);
  });

  it('goes to the primary when the DataSource has replicas', async () => {
    const slaves = [{ host: '127.0.0.1', port: await freePort() }];
    const replicated = dataSource({ url: undefined, replication: { master: { url: server.url }, slaves } });
    const store = storeOn(replicated);
    await store.open?.();
    expect(await store.tryAcquire(claim, PATIENCE_MS)).toMatchObject({ kind: 'granted' });
  });

  async function connectionsOf(applicationName: string): Promise<number> {
    const sql = 'SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = $1';
    const [row] = await raw.query<{ n: number }[]>(sql, [applicationName]);
    return row?.n ?? 0;
  }
});

function refused(call: Promise<void> | undefined): Promise<unknown> {
  return Promise.resolve(call).catch((error: unknown) => error);
}
