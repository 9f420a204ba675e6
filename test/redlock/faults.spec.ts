import { randomBytes } from 'node:crypto';

import { Redis } from 'ioredis';
import { LockService, type LockEvent, type LockStore } from 'nestjs-distributed-lock';
import { redlockStore } from 'nestjs-distributed-lock/redis';

import { eventually, until } from '../servers/eventually.js';
import {
  describeWithServers,
  startProxy,
  startRedis,
  type RedisServer,
  type TcpProxy,
} from '../servers/index.js';
import { faultsOf, type Acquired } from './history.js';
import { PATIENT_CLOCK, WatchedEars } from './watched-ears.js';

const SERVERS = 5;
const MINORITY = 2;
/** No lease ends by itself: what is free within a test was given back. */
const TTL_MS = 600_000;
/** Of a lease whose renewal is to time out: a third of it passes, and more than half of it is left for another one. */
const RENEWED_TTL_MS = 12_000;
const PATIENCE_MS = 5_000;
const LONG_WAIT_MS = 60_000;
/** A test waits for as long as it may last. */
const TEST_LIMIT_MS = 90_000;

describeWithServers(['redis'], 'Redlock on 5 servers, each behind its own network', () => {
  let servers: RedisServer[];
  let proxies: TcpProxy[];
  /** Past the proxies, and past all stores. */
  let raw: Redis[];
  /** Behind the proxies. */
  let service: LockService;
  let store: LockStore;
  let events: LockEvent[];
  /** Another process, with a way of its own. */
  let other: LockService;
  let key: string;

  beforeAll(async () => {
    servers = await Promise.all(Array.from({ length: SERVERS }, () => startRedis({ appendOnly: true })));
    proxies = await Promise.all(servers.map(({ port }) => startProxy(port)));
    raw = servers.map(({ url }) => new Redis(url));
    for (const client of raw) client.on('error', () => undefined);
  });
  afterAll(async () => {
    for (const client of raw) client.disconnect();
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    await Promise.all(servers.map((server) => server.stop()));
  });
  beforeEach(async () => {
    key = randomBytes(6).toString('hex');
    store = redlockStore({ urls: urlsOfProxies() });
    service = new LockService({ stores: { default: store } });
    other = new LockService({ stores: { default: redlockStore({ urls: servers.map(({ url }) => url) }) } });
    events = [];
    service.events.subscribe((event) => events.push(event));
    await Promise.all([service.open(), other.open()]);
  });
  afterEach(async () => {
    for (const server of servers) if (server.pid === undefined) await server.start();
    await Promise.all(proxies.map((proxy) => proxy.heal()));
    await Promise.all([service.close(0), other.close(0)]);
  });

  const faults: readonly [string, (i: number) => unknown, (i: number) => unknown][] = [
    ['killed', (i) => servers[i]?.kill(), (i) => servers[i]?.start()],
    ['frozen', (i) => servers[i]?.pause(), (i) => servers[i]?.resume()],
    ['behind a cut network', (i) => proxies[i]?.cut(), (i) => proxies[i]?.heal()],
    ['behind a network that swallows everything', (i) => proxies[i]?.freeze(), (i) => proxies[i]?.thaw()],
  ];

  it.each(faults)(
    'takes, keeps and gives back locks while a minority is %s, and when it is back',
    async (_what, begin, end) => {
      const held = await service.acquire(`${key}:held`, { ttlMs: TTL_MS });
      for (let i = 0; i < MINORITY; i += 1) await begin(i);
      const history: Acquired[] = [];
      try {
        for (let i = 0; i < 6; i += 1) await takeAndGiveBack(i % 2 ? service : other, history);
        await held.extend(TTL_MS); // a renewal
        held.assertHeld();
      } finally {
        for (let i = 0; i < MINORITY; i += 1) await end(i);
      }
      for (let i = 0; i < 6; i += 1) await takeAndGiveBack(i % 2 ? service : other, history);
      expect(await other.tryAcquire(`${key}:held`)).toBeNull();
      expect(await held.release()).toBe('released');
      expect(history).toHaveLength(12);
      expect(faultsOf(history)).toEqual([]);
    },
  );

  it.each(faults)(
    'answers STORE_UNAVAILABLE and never busy while a majority is %s, and goes on by itself',
    async (_what, begin, end) => {
      const held = await other.acquire(key, { ttlMs: TTL_MS });
      for (let i = 0; i <= MINORITY; i += 1) await begin(i);
      try {
        const refusal = await service.acquire(key, { waitMs: 700 }).catch((error: unknown) => error);
        expect(refusal).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
      } finally {
        for (let i = 0; i <= MINORITY; i += 1) await end(i);
      }
      await held.release().catch(() => undefined); // it may have been given up meanwhile
      await (await service.acquire(key, { waitMs: LONG_WAIT_MS })).release();
    },
  );

  it.each([1, MINORITY])(
    'hides that the answers of %d servers are lost, to every command of a lease',
    async (away) => {
      const lose = (): void => proxies.slice(0, away).forEach((proxy) => proxy.dropReplies(1));
      lose();
      const lease = await service.acquire(key, { ttlMs: TTL_MS });
      await healed();
      lose();
      await lease.extend(TTL_MS); // a renewal
      await healed();
      expect(await other.tryAcquire(key)).toBeNull();
      lose();
      expect(await lease.release()).toBe('released');
      await (await other.acquire(key, { waitMs: LONG_WAIT_MS })).release();
      expect(events.map(({ type }) => type)).not.toContain('acquire-unanswered');
    },
  );

  it('takes a lock although all answers to the grants were lost, and leaves no grant behind', async () => {
    loseAll();
    const lease = await service.acquire(key, { ttlMs: TTL_MS, waitMs: LONG_WAIT_MS });
    expect(events.map(({ type }) => type)).toContain('acquire-unanswered');
    expect(await other.tryAcquire(key)).toBeNull();
    expect(await lease.release()).toBe('released');
    await until('no server has it', () => isOwnedBy(null), TEST_LIMIT_MS);
  });

  it('keeps a lease although all answers to a renewal were lost', async () => {
    const lease = await service.acquire(key, { ttlMs: RENEWED_TTL_MS });
    loseAll();
    await expect(lease.extend(RENEWED_TTL_MS)).rejects.toMatchObject({ code: 'LEASE_UNCERTAIN' });
    expect(events.map(({ type }) => type)).toContain('renewal-unanswered');
    await until('it is renewed', () => events.at(-1)?.type === 'renewed', TEST_LIMIT_MS);
    lease.assertHeld();
    expect(await other.tryAcquire(key)).toBeNull();
    expect(await lease.release()).toBe('released');
  });

  it('has freed the key although all answers to the release were lost', async () => {
    const lease = await service.acquire(key, { ttlMs: TTL_MS });
    const { ownerId } = lease;
    loseAll();
    await expect(lease.release()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    const next = await other.acquire(key, { waitMs: LONG_WAIT_MS });
    const again = redlockStore({ urls: servers.map(({ url }) => url) }); // a release that is sent again comes late
    expect(await again.release({ key, ownerId, keepForMs: 0 }, PATIENCE_MS)).toBe('not-owner');
    await again.close();
    next.assertHeld();
    expect(await eventually(() => service.tryAcquire(key))).toBeNull(); // once its connections are new
    expect(await next.release()).toBe('released');
  });

  it('says of a lease that ended a moment ago that it had ended, once and at once (C032)', async () => {
    const claim = { key, ownerId: 'a', ttlMs: TTL_MS };
    expect(await store.tryAcquire(claim, PATIENCE_MS)).toMatchObject({ kind: 'granted' });
    await until('all servers have it', () => isOwnedBy('a'), TEST_LIMIT_MS);
    await Promise.all(raw.map((client) => client.pexpire(ownerKey(key), 1)));
    await until('no server has it', () => isOwnedBy(null), TEST_LIMIT_MS);
    const before = await commandsOfStores();
    expect(await store.release({ ...claim, keepForMs: 0 }, LONG_WAIT_MS)).toBe('not-owner');
    expect((await commandsOfStores()) - before).toBeLessThanOrEqual(SERVERS); // each server was asked once
  });

  it('answers the other leases of a batch when one has lost a majority and a server is away', async () => {
    const mine = ['a', 'b'].map((name) => ({ key: `${key}:${name}`, ownerId: name, ttlMs: TTL_MS }));
    for (const claim of mine) await store.tryAcquire(claim, PATIENCE_MS);
    await servers[0]?.kill();
    for (const i of [1, 2]) await raw[i]?.del(ownerKey(`${key}:a`));
    expect(await store.renew(mine, PATIENCE_MS)).toEqual(['lost', 'renewed']);
  });

  it('wakes who waits for a release, although a minority is away and nobody asks by himself', async () => {
    for (let i = 0; i < MINORITY; i += 1) await servers[i]?.kill();
    const waiter = redlockStore({ urls: urlsOfProxies() });
    const ears = new WatchedEars(waiter);
    const patient = new LockService({ stores: { default: waiter }, clock: PATIENT_CLOCK });
    for (let i = 0; i < 3; i += 1) {
      const lease = await other.acquire(key, { ttlMs: TTL_MS });
      const waiting = patient.acquire(key, { waitMs: LONG_WAIT_MS });
      await until('only a release makes it ask again', () => ears.haveAskedSinceTheyHear, TEST_LIMIT_MS);
      await lease.release();
      await (await waiting).release();
      ears.reset();
    }
    await patient.close(0);
  });

  function loseAll(): void {
    for (const proxy of proxies) proxy.dropReplies(1);
  }

  function urlsOfProxies(): string[] {
    return proxies.map(({ port }) => `redis://127.0.0.1:${port}`);
  }

  /** By the word of each server; null: by nobody. */
  async function isOwnedBy(ownerId: string | null): Promise<boolean> {
    const owners = await Promise.all(raw.map((client) => client.get(ownerKey(key))));
    return owners.every((owner) => owner === ownerId);
  }

  async function commandsOfStores(): Promise<number> {
    const stats = await Promise.all(raw.map((client) => client.info('commandstats')));
    const calls = stats.flatMap((text) => [...text.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)]);
    return calls.reduce((sum, [, count]) => sum + Number(count), 0);
  }

  async function healed(): Promise<void> {
    await Promise.all(proxies.map((proxy) => proxy.heal()));
  }

  async function takeAndGiveBack(by: LockService, history: Acquired[]): Promise<void> {
    const askedAt = performance.now();
    const lease = await by.acquire(key, { ttlMs: 10_000, waitMs: 15_000 });
    history.push({ askedAt, toldAt: performance.now(), token: lease.token });
    await lease.release();
  }
});

function ownerKey(key: string): string {
  return `redlock:{${key}}:owner`;
}
