import { setTimeout as pause } from 'node:timers/promises';

import { LockService, type Lease, type LockStore } from 'nestjs-distributed-lock';
import type { DataSource } from 'typeorm';

import { eventually, until } from '../servers/eventually.js';
import { describeWithServers, startProxy, type TcpProxy, type TestServer } from '../servers/index.js';
import { expectTaken } from './expect-taken.js';
import { sessionLockKinds } from './session-lock-kinds.js';

const TTL_MS = 3_000;
const SHORT_TTL_MS = 1_500;
/** Longer than a test may take. */
const LONG_TTL_MS = 300_000;
/** More than the answers of taking, renewing and giving back a lock, the first connection included. */
const ANSWERS = 24;

describe.each(sessionLockKinds)('with $title, the way to the server', (kind) => {
  describeWithServers([kind.server], 'may fail', () => {
    let server: TestServer;
    let raw: DataSource;
    let proxy: TcpProxy;
    /** Behind the proxy. */
    let service: LockService;
    /** Another process, with a way of its own. */
    let other: LockService;

    beforeAll(async () => {
      server = await kind.start();
      raw = await kind.dataSource(server.port).initialize();
    });
    afterAll(async () => {
      await raw.destroy();
      await server.stop();
    });
    beforeEach(async () => {
      proxy = await startProxy(server.port);
      service = serviceOn(storeAt(proxy.port));
      other = serviceOn(storeAt(server.port));
      await Promise.all([service.open(), other.open()]);
    });
    afterEach(async () => {
      await proxy.heal();
      await Promise.all([service.close(0), other.close(0)]);
      await proxy.stop();
    });

    it('keeps a lease over a link that was cut and came back, and lets nobody in between', async () => {
      const lease = await service.acquire('k', { ttlMs: TTL_MS });
      proxy.cut();
      await until('the server gives the lock back', noLocks);
      await expectTaken(other, 'k');
      await proxy.heal();
      await until('the next renewal takes it again', oneLock);
      await eventually(() => lease.assertHeld()); // the answer may still be on its way; a lease that is lost stays lost
      await expectTaken(other, 'k');
      expect(await lease.release()).toBe('released');
      await until('no lock is left', noLocks);
    });

    it('tells the holder at the end of its lease when the link stays cut, and lets the next one in not before', async () => {
      let endedAtMs = Infinity;
      let next: Promise<{ readonly lease: Lease; readonly atMs: number }> | undefined;
      const work = service.withLock('k', { ttlMs: SHORT_TTL_MS }, async ({ signal }) => {
        proxy.cut();
        next = other
          .acquire('k', { waitMs: 60_000 })
          .then((got) => ({ lease: got, atMs: performance.now() }));
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        endedAtMs = performance.now();
      });
      await expect(work).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
      const successor = await next;
      expect(successor?.atMs).toBeGreaterThan(endedAtMs);
      expect(await successor?.lease.release()).toBe('released');
    });

    it('ends a release that nobody answers, whose lock then ends with the connection (C110)', async () => {
      const lease = await service.acquire('k', { ttlMs: TTL_MS });
      proxy.freeze();
      await expect(lease.release()).rejects.toMatchObject({
        code: 'STORE_UNAVAILABLE',
        outcome: 'committed',
      });
      proxy.thaw();
      await until('the lock ends with its connection', noLocks);
      await (await other.acquire('k', { waitMs: 60_000 })).release();
    });

    it('takes, keeps and gives back a lock whichever answer of the server is lost (C041, C110)', async () => {
      const places = Array.from({ length: ANSWERS }, (_, place) => place);
      await Promise.all(places.map(useWithout));
      await until('no lock is left', noLocks);
    });

    it('is kept over a restart of the server by the row, though the lock is gone, and tokens rise', async () => {
      const lease = await service.acquire('k', { ttlMs: TTL_MS });
      await server.kill();
      await server.start();
      const next = other.acquire('k', { waitMs: 60_000 });
      await until('the lock is taken again', oneLock);
      await eventually(() => lease.assertHeld()); // the answer may still be on its way; a lease that is lost stays lost
      await lease.release();
      const successor = await next;
      expect(successor.token).toBeGreaterThan(lease.token);
      await successor.release();
    });

    it('loses its leases when the server is frozen for two ttls, one owner after the other, and goes on by itself', async () => {
      const held = service.withLock('k', { ttlMs: SHORT_TTL_MS }, async ({ token, signal }) => {
        server.pause();
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        return token;
      });
      const lost = await held.catch((error: unknown) => error);
      expect(lost).toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
      await pause(SHORT_TTL_MS);
      server.resume();
      const [one, two] = await Promise.all([
        service.withLock('k', { waitMs: 60_000 }, ({ token }) => Promise.resolve(token)),
        other.withLock('k', { waitMs: 60_000 }, ({ token }) => Promise.resolve(token)),
      ]);
      expect(one).not.toBe(two);
      expect(Math.min(one, two)).toBeGreaterThan((lost as { token?: number }).token ?? 0);
      await until('no lock is left', noLocks);
    });

    /** Takes, renews and gives back where the server's answer at one place is lost; others are kept out meanwhile. */
    async function useWithout(place: number): Promise<void> {
      const key = `lost:${place}`;
      const losing = await startProxy(server.port);
      const fresh = serviceOn(storeAt(losing.port));
      losing.dropReplies(1, place);
      const lease = await fresh.acquire(key, { ttlMs: LONG_TTL_MS, waitMs: 60_000 });
      await eventually(() => lease.extend(LONG_TTL_MS));
      await expectTaken(other, key);
      lease.assertHeld();
      await lease.release().catch((error: unknown) => expect(error).toMatchObject({ outcome: 'committed' }));
      const next = await other.acquire(key, { waitMs: 60_000 });
      expect(next.token).toBeGreaterThan(lease.token);
      await Promise.all([next.release(), fresh.close(0)]);
      await losing.stop();
    }

    function storeAt(port: number): LockStore {
      return kind.store(kind.dataSource(port));
    }

    async function oneLock(): Promise<boolean> {
      return (await locks()) === 1;
    }

    async function noLocks(): Promise<boolean> {
      return (await locks()) === 0;
    }

    async function locks(): Promise<number> {
      const [row] = await raw.query<{ n: number }[]>(kind.countLocks);
      return Number(row?.n);
    }
  });
});

function serviceOn(store: LockStore): LockService {
  return new LockService({ stores: { default: store } });
}
