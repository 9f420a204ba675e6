import { setTimeout as pause } from 'node:timers/promises';

import type { LockService, Claim, LockStore } from 'nestjs-distributed-lock';
import { zookeeperStore, type ZooKeeperStoreOptions } from 'nestjs-distributed-lock/zookeeper';

import { eventually } from '../servers/eventually.js';
import { freePort } from '../servers/free-port.js';
import { describeWithServers, startProxy, startZooKeeper, type TestServer } from '../servers/index.js';
import { expectSoon } from './expect-soon.js';
import { expectWokenAtEveryRelease } from './expect-woken.js';
import { Opened } from './opened.js';
import { expectWokenAfterRestart } from './server-trouble.js';
import { ZooKeeperAdmin } from './zookeeper-admin.js';

const PATIENCE_MS = 30_000;
/** Longer than a test may take. */
const LONG_MS = 100_000;
const claim: Claim = { key: 'invoice:1', ownerId: 'a', ttlMs: LONG_MS };
const PATH = '/locks/invoice%3A1';

describeWithServers(['zookeeper'], 'the ZooKeeper store on its server', () => {
  let server: TestServer;
  let admin: ZooKeeperAdmin;
  let store: LockStore;
  const opened = new Opened();

  beforeAll(async () => {
    server = await startZooKeeper();
    admin = new ZooKeeperAdmin(server);
    await storeAt().open?.();
  });
  beforeEach(async () => {
    for (const name of await admin.children('/locks'))
      await admin.remove(`/locks/${name}`).catch(() => undefined);
    store = storeAt();
  });
  afterAll(() => server.stop());

  it.each([1_000, 15_000])(
    'wakes who waits when the key becomes free, without asking for it again and again: ttl %d, held',
    async (ttlMs) => {
      await store.tryAcquire({ ...claim, ttlMs }, PATIENCE_MS);
      const { service, attempts } = serviceAt();
      const waiting = service.acquire(claim.key, { waitMs: 60_000 });
      if (ttlMs > 1_000) {
        await pause(1_500);
        await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
      }
      await expectSoon(waiting, ttlMs === 1_000 ? 2_000 : 500, serviceAt().service);
      expect(attempts.at(-1)).toBeLessThanOrEqual(6);
    },
  );

  it('wakes at every release, whoever took the key in between (C090)', async () => {
    await expectWokenAtEveryRelease(store, storeAt(), claim);
  });

  it('hears of releases again after the server was restarted', async () => {
    await store.tryAcquire(claim, PATIENCE_MS);
    const listening = storeOf({});
    await expectWokenAfterRestart(server, claim.key, {
      listening,
      waiting: opened.service(listening),
      beside: serviceAt().service,
      release: () => eventually(() => store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS)),
    });
  });

  it('takes no node of a session that has ended for its own when it comes back (C063)', async () => {
    const proxy = opened.server(await startProxy(server.port));
    const cut = storeAt({ hosts: `127.0.0.1:${proxy.port}` });
    const old = { ...claim, ttlMs: 1_000 };
    const first = await cut.tryAcquire(old, PATIENCE_MS);
    proxy.cut();
    const { service } = serviceAt();
    const next = await service.acquire(claim.key, { waitMs: 60_000 });
    await proxy.heal();
    expect(await eventually(() => cut.renew([old], PATIENCE_MS))).toEqual(['lost']);
    expect(await cut.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS)).toMatchObject({ kind: 'busy' });
    expect(await cut.release({ ...old, keepForMs: 0 }, PATIENCE_MS)).toBe('not-owner');
    next.assertHeld();
    expect(first.kind === 'granted' && next.token).toBeGreaterThan((first as { token: number }).token);
    expect(await next.release()).toBe('released');
  });

  it('gives a lock back whose release was cut off, as soon as the link is there again (C076)', async () => {
    const proxy = opened.server(await startProxy(server.port));
    const { service } = serviceAt({ hosts: `127.0.0.1:${proxy.port}` });
    const lease = await service.acquire(claim.key, { ttlMs: LONG_MS });
    proxy.cut();
    await expect(lease.release()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'committed' });
    expect(await admin.has(PATH)).toBe(true);
    await proxy.heal();
    await (await serviceAt().service.acquire(claim.key, { waitMs: 60_000 })).release();
    await (await service.acquire(claim.key, { waitMs: 60_000 })).release();
  });

  it('asks again where a connection fell silent: what is held is renewed, what has ended is lost, in the same call', async () => {
    const proxy = opened.server(await startProxy(server.port));
    const silent = storeAt({ hosts: `127.0.0.1:${proxy.port}` });
    await silent.tryAcquire(claim, PATIENCE_MS);
    proxy.dropReplies(1);
    expect(await silent.renew([claim], PATIENCE_MS)).toEqual(['renewed']);
    await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
    proxy.dropReplies(1);
    expect(await silent.renew([claim], PATIENCE_MS)).toEqual(['lost']);
    await silent.tryAcquire(claim, PATIENCE_MS);
    proxy.dropReplies(1);
    expect(await silent.release({ ...claim, keepForMs: 0 }, PATIENCE_MS)).toBe('released');
    expect(await admin.has(PATH)).toBe(false);
  });

  it('answers a renewal that crosses a release on another connection, in each of 1 000 rounds (C080)', async () => {
    const other = storeAt();
    for (let round = 0; round < 1_000; round += 1) {
      const owner = { ...claim, ownerId: `${round}` };
      await store.tryAcquire(owner, PATIENCE_MS);
      const crossing = other.renew([owner], PATIENCE_MS);
      const released = await store.release({ ...owner, keepForMs: 0 }, PATIENCE_MS);
      expect([await crossing, released]).toEqual([[expect.stringMatching(/^(renewed|lost)$/)], 'released']);
    }
  });

  it('is not confused by a lost answer to any of its commands, and leaves no node behind (C090)', async () => {
    await Promise.all(Array.from({ length: 14 }, (_, place) => useWithout(place)));
    expect(await admin.children('/locks')).toEqual([]);
  });

  it('needs no connection for each lock: 60 locks are held, renewed and given back over three', async () => {
    const few = storeAt({ maxConnections: 3 });
    const claims = Array.from({ length: 60 }, (_, i): Claim => ({ ...claim, key: `many:${i}` }));
    const taken = await Promise.all(claims.map((each) => few.tryAcquire(each, PATIENCE_MS)));
    expect(taken.every(({ kind }) => kind === 'granted')).toBe(true);
    expect(await connections()).toBeLessThanOrEqual(3 + 1 + 2); // the reader's, and those that ask
    expect(new Set(await few.renew(claims, PATIENCE_MS))).toEqual(new Set(['renewed']));
    const given = claims.map((each) => few.release({ ...each, keepForMs: 0 }, PATIENCE_MS));
    expect(new Set(await Promise.all(given))).toEqual(new Set(['released']));
    expect(await admin.children('/locks')).toEqual([]);
  });

  it.each(['x', '{"ownerId":"b"}', JSON.stringify({ ownerId: 'b', password: '' })])(
    'names its node when it finds one that never ends, %s, and never calls that busy',
    async (data) => {
      await admin.create(PATH, data);
      await expect(store.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(
        /"\/locks\/invoice%3A1" is not usable/,
      );
    },
  );

  it('makes its root when somebody has removed it', async () => {
    const deep = storeAt({ root: '/apps/billing/locks' });
    expect(await deep.tryAcquire(claim, PATIENCE_MS)).toMatchObject({ kind: 'granted' });
    expect(await admin.has('/apps/billing/locks/invoice%3A1')).toBe(true);
  });

  describe('at boot', () => {
    it('says where nothing answers', async () => {
      const nowhere = storeAt({ hosts: `127.0.0.1:${await freePort()}` });
      await expect(nowhere.open?.()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    });

    it('learns for how long the server keeps sessions, and refuses other ttls', async () => {
      const { service } = serviceAt();
      await service.open();
      for (const ttlMs of [499, 120_001]) {
        await expect(service.acquire('k', { ttlMs })).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
      }
      await (await service.acquire('k', { ttlMs: 500 })).release();
    });
  });

  it('makes locks that belong to its user alone when it has one', async () => {
    const auth = { scheme: 'digest', credentials: 'locks:secret' };
    const mine = storeAt({ auth });
    await mine.open?.();
    await mine.tryAcquire(claim, PATIENCE_MS);
    await expect(store.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS)).rejects.toThrow(/error -102/);
    expect(await mine.renew([claim], PATIENCE_MS)).toEqual(['renewed']);
    expect(await mine.release({ ...claim, keepForMs: 0 }, PATIENCE_MS)).toBe('released');
  });

  /** Takes, renews and gives back where one answer is lost; meanwhile others are kept out, and then they get in. */
  async function useWithout(place: number): Promise<void> {
    const proxy = opened.server(await startProxy(server.port));
    proxy.dropReplies(1, place);
    const key = `lost:${place}`;
    const { service } = serviceAt({ hosts: `127.0.0.1:${proxy.port}` });
    const lease = await service.acquire(key, { ttlMs: LONG_MS, waitMs: 60_000 });
    for (const ttlMs of [LONG_MS, 1.2 * LONG_MS, 1.2 * LONG_MS]) await eventually(() => lease.extend(ttlMs));
    expect((await store.tryAcquire({ ...claim, key }, PATIENCE_MS)).kind).toBe('busy');
    lease.assertHeld();
    await lease.release().catch((error: unknown) => expect(error).toMatchObject({ outcome: 'committed' }));
    const next = await serviceAt().service.acquire(key, { waitMs: 60_000 });
    expect(next.token).toBeGreaterThan(lease.token);
    await next.release();
  }

  function storeOf(options: Partial<ZooKeeperStoreOptions>): LockStore {
    return zookeeperStore({ hosts: `${server.host}:${server.port}`, ...options });
  }

  function storeAt(options: Partial<ZooKeeperStoreOptions> = {}): LockStore {
    return opened.store(storeOf(options));
  }

  function serviceAt(options: Partial<ZooKeeperStoreOptions> = {}): {
    service: LockService;
    attempts: number[];
  } {
    const service = opened.service(storeOf(options));
    const attempts: number[] = [];
    service.events.subscribe((event) => event.type === 'acquired' && attempts.push(event.attempts));
    return { service, attempts };
  }

  async function connections(): Promise<number> {
    return Number(/^Connections: (\d+)$/m.exec(await admin.word('srvr'))?.[1]);
  }
});
