import { randomBytes } from 'node:crypto';

import { Redis } from 'ioredis';
import { LockService, type LockEvent, type LockStore } from 'nestjs-distributed-lock';
import { redlockStore } from 'nestjs-distributed-lock/redis';

import {
  describeWithServers,
  startProxy,
  startRedis,
  type RedisServer,
  type TcpProxy,
} from '../servers/index.js';
import { faultsOf, type Acquired } from './history.js';

const SERVERS = 5;
const MINORITY = 2;
const TTL_MS = 3_000;

describeWithServers(['redis'], 'Redlock on 5 servers, each behind its own network', () => {
  let servers: RedisServer[];
  let proxies: TcpProxy[];
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
  });
  afterAll(async () => {
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    await Promise.all(servers.map((server) => server.stop()));
  });
  beforeEach(async () => {
    key = randomBytes(6).toString('hex');
    store = redlockStore({ urls: proxies.map(({ port }) => `redis://127.0.0.1:${port}`) });
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
      const held = await service.acquire(`${key}:held`, { ttlMs: 1_500 });
      for (let i = 0; i < MINORITY; i += 1) await begin(i);
      const history: Acquired[] = [];
      try {
        for (let i = 0; i < 6; i += 1) await takeAndGiveBack(i % 2 ? service : other, history);
        await pause(2_000);
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
      const held = await other.acquire(key, { ttlMs: 60_000 });
      for (let i = 0; i <= MINORITY; i += 1) await begin(i);
      try {
        const refusal = await service.acquire(key, { waitMs: 700 }).catch((error: unknown) => error);
        expect(refusal).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
      } finally {
        for (let i = 0; i <= MINORITY; i += 1) await end(i);
      }
      await held.release().catch(() => undefined); // it may have been given up meanwhile
      await (await service.acquire(key, { waitMs: 20_000 })).release();
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
      await pause(TTL_MS * 0.5); // a renewal
      lease.assertHeld();
      await healed();
      expect(await other.tryAcquire(key)).toBeNull();
      lose();
      expect(await lease.release()).toBe('released');
      await (await other.acquire(key, { waitMs: 1_000 })).release();
      expect(events.map(({ type }) => type)).not.toContain('acquire-unanswered');
    },
  );

  it('takes a lock although all answers to the grants were lost, and leaves no grant behind', async () => {
    loseAll();
    const lease = await service.acquire(key, { ttlMs: TTL_MS, waitMs: 15_000 });
    expect(events.map(({ type }) => type)).toContain('acquire-unanswered');
    expect(await other.tryAcquire(key)).toBeNull();
    expect(await lease.release()).toBe('released');
    await (await other.acquire(key, { waitMs: TTL_MS + 1_000 })).release();
  });

  it('keeps a lease although all answers to a renewal were lost', async () => {
    const lease = await service.acquire(key, { ttlMs: TTL_MS });
    loseAll();
    await pause(TTL_MS * 1.5);
    expect(events.map(({ type }) => type)).toContain('renewal-unanswered');
    lease.assertHeld();
    expect(await other.tryAcquire(key)).toBeNull();
    expect(await lease.release()).toBe('released');
  });

  it('has freed the key although all answers to the release were lost', async () => {
    const lease = await service.acquire(key, { ttlMs: TTL_MS });
    loseAll();
    await expect(lease.release()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    const next = await other.acquire(key, { waitMs: 500 });
    await pause(500); // the release is sent again meanwhile, and must not free the successor
    next.assertHeld();
    expect(await service.tryAcquire(key)).toBeNull();
    expect(await next.release()).toBe('released');
  });

  it('says of a lease that ended a moment ago that it had ended, once and at once (C032)', async () => {
    const claim = { key, ownerId: 'a', ttlMs: 200 };
    await store.tryAcquire(claim, 1_000);
    await pause(300);
    const sentAtMs = performance.now();
    expect(await store.release({ ...claim, keepForMs: 0 }, 1_000)).toBe('not-owner');
    expect(performance.now() - sentAtMs).toBeLessThan(500);
  });

  it('answers the other leases of a batch when one has lost a majority and a server is away', async () => {
    const mine = ['a', 'b'].map((name) => ({ key: `${key}:${name}`, ownerId: name, ttlMs: 20_000 }));
    for (const claim of mine) await store.tryAcquire(claim, 1_000);
    await servers[0]?.kill();
    for (const i of [1, 2]) {
      const raw = new Redis(servers[i]?.url as string);
      await raw.del(`redlock:{${key}:a}:owner`);
      raw.disconnect();
    }
    expect(await store.renew(mine, 2_000)).toEqual(['lost', 'renewed']);
  });

  it('wakes who waits for a release, although a minority is away and nobody polls so often', async () => {
    for (let i = 0; i < MINORITY; i += 1) await servers[i]?.kill();
    const handOffsMs: number[] = [];
    for (let i = 0; i < 5; i += 1) {
      const lease = await other.acquire(key, { ttlMs: 60_000 });
      const waiting = service.acquire(key, { waitMs: 20_000 });
      await pause(700); // by now it has asked, subscribed and asked again, and would ask in two seconds
      const releasedAtMs = performance.now();
      await lease.release();
      const next = await waiting;
      handOffsMs.push(performance.now() - releasedAtMs);
      await next.release();
    }
    expect(handOffsMs.sort((a, b) => a - b)[2]).toBeLessThan(1_000); // half of what asking alone would take at best
  });

  function loseAll(): void {
    for (const proxy of proxies) proxy.dropReplies(1);
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

function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, durationMs));
}
