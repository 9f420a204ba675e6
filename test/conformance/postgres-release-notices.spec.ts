import { setTimeout as pause } from 'node:timers/promises';

import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { createLockTables, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { until } from '../servers/eventually.js';
import { describeWithServers, startPostgres, type PostgresServer } from '../servers/index.js';
import { watchOf } from './counted-watch.js';
import { processNumberOfPostgres, startPooler } from './pooler.js';

const PATIENCE_MS = 60_000;
const CHANNEL = 'nestjs_distributed_lock_lease';
const ROUNDS = 200;
const AT_ONCE = 8;
/** What a notice is made of. */
const NEEDED = ['pg_notify(text,text)', 'pg_try_advisory_xact_lock(int8)', 'pg_advisory_lock_shared(int8)'];
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 200_000 };

describeWithServers(['postgres'], 'releases of the lease table in PostgreSQL', () => {
  let server: PostgresServer;
  let raw: DataSource;
  const stores: LockStore[] = [];
  let roles = 0;

  beforeAll(async () => {
    server = await startPostgres();
    raw = await new DataSource({ type: 'postgres', url: server.url, poolSize: 3 }).initialize();
    await createLockTables(raw);
  });
  afterEach(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
    await until('the connections of closed stores end', async () => (await listeners()).length === 0);
    await raw.query('TRUNCATE lock_lease');
    for (const each of NEEDED) await raw.query(`GRANT EXECUTE ON FUNCTION ${each} TO PUBLIC`);
  });
  afterAll(async () => {
    await raw.destroy();
    await server.stop();
  });

  it('wake who waits in other processes, once heard, and nobody who waits for another key', async () => {
    const holder = storeAt(server.port);
    await holder.tryAcquire(claim, PATIENCE_MS);
    const [same, other] = [watchOf(storeAt(server.port), claim.key), watchOf(storeAt(server.port), 'k')];
    await until('both listen', () => same.hears && other.hears);
    const [before, ofOther] = [same.wakes, other.wakes];
    await release(holder);
    await until('the release is heard', () => same.wakes > before);
    expect(other.wakes).toBe(ofOther);
  });

  it('send nothing while nobody waits, since notices of all transactions queue up behind each other', async () => {
    const outside = raw.createQueryRunner();
    const heard: unknown[] = [];
    const connection = (await outside.connect()) as {
      on(event: string, listener: (n: unknown) => void): void;
    };
    connection.on('notification', (notice) => heard.push(notice));
    await outside.query(`LISTEN ${CHANNEL}`);
    const holder = storeAt(server.port);
    for (let i = 0; i < 20; i += 1) {
      await holder.tryAcquire(claim, PATIENCE_MS);
      await release(holder);
    }
    await outside.query('SELECT 1'); // notices come before answers
    expect(heard).toEqual([]);
    await holder.tryAcquire(claim, PATIENCE_MS);
    const watch = watchOf(storeAt(server.port), claim.key);
    await until('somebody waits', () => watch.hears);
    await release(holder);
    await until('it is told', async () => (await outside.query('SELECT 1')) && heard.length > 0);
    await outside.query('UNLISTEN *');
    await outside.release();
  });

  it(`are not missed by who begins to wait at that moment, in ${ROUNDS} rounds`, async () => {
    const holder = storeAt(server.port);
    const missed: number[] = [];
    const round = async (nr: number): Promise<void> => {
      const waiter = storeAt(server.port);
      const mine = { ...claim, key: `round:${nr}` };
      await holder.tryAcquire(mine, PATIENCE_MS);
      const granted = grantedByWakes(waiter, { ...mine, ownerId: 'b' });
      await pause((nr % 20) * 3);
      await release(holder, mine.key);
      if (!(await granted)) missed.push(nr);
      await waiter.close();
    };
    for (let nr = 0; nr < ROUNDS; nr += AT_ONCE)
      await Promise.all(Array.from({ length: AT_ONCE }, (_, i) => round(nr + i)));
    expect(missed).toEqual([]);
  });

  it('are heard again when the connection that listens was ended', async () => {
    const holder = storeAt(server.port);
    await holder.tryAcquire(claim, PATIENCE_MS);
    const watch = watchOf(storeAt(server.port), claim.key);
    await until('it listens', () => watch.hears);
    const [pid] = await listeners();
    await raw.query('SELECT pg_terminate_backend($1)', [pid]);
    await until('another listens', async () => watch.hears && (await listeners())[0] !== pid);
    const before = watch.wakes;
    await release(holder);
    await until('the release is heard', () => watch.wakes > before);
  });

  it.each(NEEDED)(
    'happen also where the role may not call %s: nobody is told, and nobody listens in vain',
    async (forbidden) => {
      const role = await roleWith({ forbidden });
      const holder = storeAt(server.port, role);
      await holder.open?.();
      const watch = watchOf(storeAt(server.port, role), claim.key);
      const triesBefore = await sessionsBegun();
      for (let i = 0; i < 2; i += 1) {
        await holder.tryAcquire(claim, PATIENCE_MS);
        await release(holder);
      }
      await until('it has tried to listen', async () => (await sessionsBegun()) >= triesBefore + 2);
      expect([watch.hears, watch.wakes]).toEqual([false, 0]);
      watch.stop();
    },
  );

  it('are not relied on while the server is frozen, and are heard again when it goes on', async () => {
    const holder = storeAt(server.port);
    await holder.tryAcquire(claim, PATIENCE_MS);
    const watch = watchOf(storeAt(server.port), claim.key);
    await until('it listens', () => watch.hears);
    server.pause();
    try {
      await until('the silence is noticed', () => !watch.hears);
    } finally {
      server.resume();
    }
    await until('it listens again', () => watch.hears);
    const before = watch.wakes;
    await release(holder);
    await until('the release is heard', () => watch.wakes > before);
  });

  it('are heard on one connection, whatever limit a role has for idle ones', async () => {
    const role = await roleWith({ idleMs: 500 });
    const watch = watchOf(storeAt(server.port, role), claim.key);
    await until('it listens', () => watch.hears);
    const begun = await listeners();
    await pause(1_500);
    expect(await listeners()).toEqual(begun);
    expect([watch.hears, watch.wakes]).toEqual([true, 1]);
  });

  it('are not listened for with a crowd of tries when there is no connection left', async () => {
    const role = await roleWith({ connections: 0 });
    const tries = jest.spyOn(DataSource.prototype, 'initialize');
    const watch = watchOf(storeAt(server.port, role), claim.key);
    await pause(3_000);
    await until('it has tried again', () => tries.mock.calls.length >= 2);
    expect(tries.mock.calls.length).toBeLessThanOrEqual(6);
    tries.mockRestore();
    await raw.query(`ALTER ROLE ${role} CONNECTION LIMIT -1`);
    await until('it listens', () => watch.hears);
  });

  it('are not listened for through a pooler, which would keep the lock of who listens: the core asks in short intervals', async () => {
    const pooler = await startPooler(server.port, processNumberOfPostgres);
    const [holder, behind] = [storeAt(server.port), storeAt(pooler.port)];
    const service = new LockService({ stores: { default: behind } });
    await holder.tryAcquire(claim, PATIENCE_MS);
    const watch = watchOf(behind, claim.key);
    const waiting = service.acquire(claim.key, { waitMs: PATIENCE_MS });
    for (let i = 0; i < 20; i += 1) {
      await pause(50); // in less it listens without a pooler
      expect([watch.hears, await listeners()]).toEqual([false, []]);
    }
    await release(holder);
    await (await waiting).release();
    watch.stop();
    await service.close();
    await pooler.stop();
  });

  function storeAt(port: number, role = 'postgres'): LockStore {
    const url = `postgres://${role}@127.0.0.1:${port}/postgres`;
    const poolErrorHandler = (): void => undefined; // sessions are ended
    const store = typeormStore({ dataSource: new DataSource({ type: 'postgres', url, poolErrorHandler }) });
    stores.push(store);
    return store;
  }

  /** A role that may use the lease table, and little else. */
  async function roleWith(limits: RoleLimits): Promise<string> {
    const role = `role${(roles += 1)}`;
    await raw.query(`CREATE ROLE ${role} LOGIN CONNECTION LIMIT ${limits.connections ?? -1}`);
    await raw.query(`GRANT ALL ON lock_lease TO ${role}`);
    if (limits.idleMs) await raw.query(`ALTER ROLE ${role} SET idle_session_timeout = ${limits.idleMs}`);
    if (limits.forbidden) await raw.query(`REVOKE EXECUTE ON FUNCTION ${limits.forbidden} FROM PUBLIC`);
    return role;
  }

  async function sessionsBegun(): Promise<number> {
    const sql = 'SELECT sum(sessions)::int AS begun FROM pg_stat_database';
    const [row] = await raw.query<{ begun: number }[]>(sql);
    return row?.begun ?? 0;
  }

  /** Processes of the server that have the lock of those who listen. */
  async function listeners(): Promise<number[]> {
    const sql = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted ORDER BY pid`;
    return (await raw.query<{ pid: number }[]>(sql)).map(({ pid }) => pid);
  }
});

async function release(store: LockStore, key = claim.key): Promise<void> {
  expect(await store.release({ key, ownerId: claim.ownerId, keepForMs: 0 }, PATIENCE_MS)).toBe('released');
}

interface RoleLimits {
  readonly forbidden?: string;
  readonly idleMs?: number;
  readonly connections?: number;
}

/** Tries when it is woken, and at no other time; false when that was in vain for too long. */
function grantedByWakes(store: LockStore, mine: typeof claim): Promise<boolean> {
  return new Promise((resolve) => {
    const limit = setTimeout(() => resolve(false), PATIENCE_MS);
    const watch = store.watch?.(mine.key, () => {
      const granted = ({ kind }: { readonly kind: string }): void => {
        if (kind !== 'granted') return;
        clearTimeout(limit);
        watch?.stop();
        resolve(true);
      };
      store.tryAcquire(mine, PATIENCE_MS).then(granted, () => undefined); // a second one, when the store closes
    });
  });
}
