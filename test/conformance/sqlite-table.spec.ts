import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';

import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { createLockTables, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { Lateness } from '../faults/lateness.js';

const PATIENCE_MS = 30_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 200_000 };
const driver: unknown = createRequire(__filename)('libsql');

describe('the lease table in SQLite', () => {
  const folder = mkdtempSync(join(tmpdir(), 'lock-sqlite-'));
  const users = fileAt('app.db');
  let store: LockStore;

  beforeAll(async () => {
    await createLockTables(users);
    await users.initialize();
  });
  beforeEach(async () => {
    await users.query('DELETE FROM lock_lease');
    store = typeormStore({ dataSource: users });
  });
  afterEach(() => store.close());
  afterAll(async () => {
    await users.destroy();
    rmSync(folder, { recursive: true });
  });

  function fileAt(name: string): DataSource {
    return new DataSource({ type: 'better-sqlite3', driver, database: join(folder, name), enableWAL: true });
  }

  it('is refused at boot when it is missing or has other columns', async () => {
    const empty = typeormStore({ dataSource: fileAt('empty.db') });
    await expect(empty.open?.()).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringMatching(/no such table: lock_lease.*Call createLockTables\(dataSource\)/),
    });
    await empty.close();
    await users.query('CREATE TABLE odd (key TEXT, owner_id TEXT, token INTEGER, expires_at_ms INTEGER)');
    const odd = typeormStore({ dataSource: users, table: 'odd' });
    await expect(odd.open?.()).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    await odd.close();
  });

  it('refuses a database in memory, of which a second connection would see another', () => {
    const inMemory = new DataSource({ type: 'better-sqlite3', driver, database: ':memory:' });
    expect(() => typeormStore({ dataSource: inMemory })).toThrow(
      expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }),
    );
  });

  it('keeps its row and its token after a release', async () => {
    const answer = await store.tryAcquire(claim, PATIENCE_MS);
    await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
    const token = answer.kind === 'granted' ? answer.token : 0;
    expect(await users.query('SELECT * FROM lock_lease')).toEqual([
      { key: claim.key, owner_id: null, token, expires_at_ms: 0 },
    ]);
  });

  it('neither joins nor suffers the rollback of a transaction of the application (C093)', async () => {
    const service = new LockService({ stores: { default: store } });
    const session = users.createQueryRunner();
    await session.startTransaction();
    const lease = await service.acquire('k');
    await session.rollbackTransaction();
    const other = typeormStore({ dataSource: users });
    expect(await other.tryAcquire({ ...claim, key: 'k' }, PATIENCE_MS)).toMatchObject({ kind: 'busy' });
    expect(await lease.release()).toBe('released');
    await service.close(0);
    await other.close();
  });

  it('waits for a writer without blocking the event loop, and takes the lock once the writer is done (C111)', async () => {
    const service = new LockService({ stores: { default: store } });
    await store.open?.();
    const session = await startWriting();
    const before = performance.eventLoopUtilization();
    const acquired = service.acquire('k', { waitMs: PATIENCE_MS });
    await pause(300);
    const { utilization } = performance.eventLoopUtilization(before);
    await session.rollbackTransaction();
    const lease = await acquired;
    expect(utilization).toBeLessThan(0.95); // a driver that waits by itself would never let the loop be idle
    await lease.release();
    await service.close(0);
  });

  it('calls a file that another writer keeps locked unavailable, not busy, when the time is over (C111)', async () => {
    const service = new LockService({ stores: { default: store } });
    await store.open?.();
    const session = await startWriting();
    const lateness = new Lateness();
    const sentAtMs = performance.now();
    try {
      await expect(service.acquire('k', { waitMs: 300 })).rejects.toMatchObject({
        code: 'STORE_UNAVAILABLE',
      });
      expect(performance.now() - sentAtMs).toBeLessThan(1_000 + lateness.totalMs);
    } finally {
      lateness.end();
      await session.rollbackTransaction();
    }
    await (await service.acquire('k', { waitMs: PATIENCE_MS })).release();
    await service.close(0);
  });

  it.each([3 * 60_000, -3 * 60_000])(
    'ignores a Date that is %d ms off in one process (C048)',
    async (skewMs) => {
      await store.tryAcquire(claim, PATIENCE_MS);
      const now = Date.now;
      const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + skewMs);
      const other = typeormStore({ dataSource: users });
      try {
        const answer = await other.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS);
        expect(answer.kind === 'busy' && answer.retryAfterMs).toBeLessThanOrEqual(claim.ttlMs);
      } finally {
        clock.mockRestore();
        await other.close();
      }
    },
  );

  /** Another connection that holds the right to write. */
  async function startWriting(): Promise<{ rollbackTransaction(): Promise<void> }> {
    const session = users.createQueryRunner();
    await session.startTransaction();
    await session.query(`INSERT INTO lock_lease VALUES ('other', NULL, 1, 0)`);
    return session;
  }
});
