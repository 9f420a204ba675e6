import { Cluster } from 'ioredis';
import { IdempotencyService, LockService, type LockStore } from 'nestjs-distributed-lock';
import { redisIdempotencyStore, redisStore } from 'nestjs-distributed-lock/redis';

import {
  describeWithServers,
  startRedisCluster,
  type RedisCluster,
  type RedisServer,
} from '../servers/index.js';
import { redisCommand, until } from '../servers/redis-command.js';

const PATIENCE_MS = 5_000;
const ROUNDS = 3;

/** One hold of the lock that the workers fight for. */
interface Section {
  readonly token: number;
  readonly others: number;
}

describeWithServers(['redis'], 'a cluster of Redis that changes', () => {
  let redis: RedisCluster;
  let client: Cluster;
  const ends: (() => Promise<void>)[] = [];

  beforeAll(async () => {
    redis = await startRedisCluster();
    client = new Cluster([...redis.addresses], { enableAutoPipelining: true });
    client.on('error', () => undefined);
  });
  afterEach(async () => {
    for (const end of ends.splice(0)) await end();
  });
  afterAll(async () => {
    client.disconnect();
    await redis.stop();
  });

  it('is refused at boot as a single server, and when one of its nodes may evict; no replica confirms there', async () => {
    const [first, , third] = redis.nodes as [RedisServer, RedisServer, RedisServer];
    const single = kept(redisStore({ url: first.url }));
    await expect(single.open?.()).rejects.toThrow(/it is a node of a Redis Cluster/);
    await kept(own()).open?.();
    await redisCommand(third.port, 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    for (const store of [kept(own()), kept(redisStore({ client }))])
      await expect(store.open?.()).rejects.toThrow(`${third.port} cannot keep locks: under memory pressure`);
    await redisCommand(third.port, 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
    const strict = kept(redisStore({ cluster: redis.addresses, minReplicas: 1 }));
    await expect(strict.open?.()).rejects.toThrow(/has 0 replicas/);
    const claim = { key: 'strict', ownerId: 'a', ttlMs: 1_000 };
    await expect(strict.tryAcquire(claim, 500)).rejects.toThrow(/only 0 of 1 replicas/);
  });

  it('never has two owners, and tokens rise, while the slot of their lock moves from node to node (C064)', async () => {
    const history: Section[] = [];
    const services = [own(), own(), redisStore({ client })].map((store) => serviceOn(store));
    const done = new AbortController();
    const working = services.map((service) => work(service, history, done.signal));
    const more = async (): Promise<void> => {
      const before = history.length;
      await until('work goes on', () => Promise.resolve(history.length >= before + 15));
    };
    await more();
    const slot = await redis.slotOf('lock:{k}:owner');
    for (let round = 0; round < ROUNDS; round += 1) {
      await redis.move(slot, await anotherOwner(slot), () => pause(150));
      await more();
    }
    done.abort();
    await Promise.all(working);
    expect(history.every(({ others }) => others === 0)).toBe(true);
    const tokens = history.map(({ token }) => token);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
  });

  it('renews a lease whose slot is on its way, and releases it', async () => {
    const service = serviceOn(own());
    const lease = await service.acquire('moving', { ttlMs: 60_000 });
    const slot = await redis.slotOf('lock:{moving}:owner');
    await redis.move(slot, await anotherOwner(slot), () => lease.extend(60_000));
    expect(await lease.release()).toBe('released');
    await (await service.acquire('moving')).release();
  });

  it('wakes who waits for a lock, whichever node it lies on, and whoever the client belongs to', async () => {
    for (const waiting of [kept(own()), kept(redisStore({ client }))]) {
      const releasing = kept(own());
      await waiting.open?.();
      for (const key of await oneKeyPerNode()) {
        const claim = { key, ownerId: 'a', ttlMs: 30_000 };
        await releasing.tryAcquire(claim, PATIENCE_MS);
        let wakes = 0;
        const watch = waiting.watch?.(key, () => (wakes += 1));
        await until('it hears', () => Promise.resolve(watch?.hears === true));
        const before = wakes;
        await releasing.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
        await until('it was woken', () => Promise.resolve(wakes > before));
        watch?.stop();
      }
    }
  });

  it('keeps the leases of the nodes that are there when one is killed, and takes locks there again when it is back', async () => {
    const service = serviceOn(own());
    const keys = await oneKeyPerNode();
    const leases = await Promise.all(keys.map((key) => service.acquire(key, { ttlMs: 1_500 })));
    const victim = await redis.ownerOf(await redis.slotOf(`lock:{${keys[0] ?? ''}}:owner`));
    await victim.kill();
    const [lost, ...rest] = leases;
    await new Promise((resolve) => lost?.signal.addEventListener('abort', resolve));
    await pause(1_500); // another ttl
    for (const lease of rest) lease.assertHeld();
    await victim.start();
    const again = await service.acquire(keys[0] ?? '', { waitMs: 15_000 });
    expect(again.token).toBeGreaterThan(lost?.token as number);
    for (const lease of [again, ...rest]) expect(await lease.release()).toBe('released');
  });

  it('keeps idempotency records on all of its nodes, also of claims that come together', async () => {
    const store = redisIdempotencyStore({ cluster: redis.addresses });
    ends.push(() => store.close());
    await store.open?.();
    const calls = new IdempotencyService({ store });
    const together = (word: string): Promise<string[]> =>
      Promise.all(Array.from({ length: 40 }, (_, i) => calls.runOnce(`call ${i}`, {}, () => word)));
    expect(new Set(await together('ran'))).toEqual(new Set(['ran']));
    expect(new Set(await together('ran again'))).toEqual(new Set(['ran']));
  });

  it('is told apart from what it holds: a foreign value is named', async () => {
    await client.lpush('lock:{foreign}:owner', 'x');
    const claim = { key: 'foreign', ownerId: 'a', ttlMs: 1_000 };
    await expect(kept(own()).tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(
      /Redis key "lock:\{foreign\}:owner" is not usable/,
    );
  });

  function own(): LockStore {
    return redisStore({ cluster: redis.addresses.slice(0, 2) });
  }

  function kept(store: LockStore): LockStore {
    ends.push(() => store.close());
    return store;
  }

  function serviceOn(store: LockStore): LockService {
    const service = new LockService({ stores: { default: store } });
    ends.push(() => service.close(0));
    return service;
  }

  async function anotherOwner(slot: number): Promise<RedisServer> {
    const owner = await redis.ownerOf(slot);
    const at = redis.nodes.indexOf(owner);
    return redis.nodes[(at + 1) % redis.nodes.length] as RedisServer;
  }

  async function oneKeyPerNode(): Promise<string[]> {
    const keys = new Map<RedisServer, string>();
    for (let i = 0; keys.size < redis.nodes.length; i += 1) {
      const owner = await redis.ownerOf(await redis.slotOf(`lock:{key ${i}}:owner`));
      if (!keys.has(owner)) keys.set(owner, `key ${i}`);
    }
    return [...keys.values()];
  }
});

/** How many are inside: the workers share this process, not their connections. */
let inside = 0;

async function work(service: LockService, history: Section[], done: AbortSignal): Promise<void> {
  while (!done.aborted) {
    await service.withLock('k', { ttlMs: 5_000, waitMs: 30_000 }, async (lease) => {
      history.push({ token: lease.token, others: inside });
      inside += 1;
      await pause(2);
      inside -= 1;
    });
  }
}

function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, durationMs));
}
