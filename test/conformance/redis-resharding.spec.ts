import { setTimeout as pause } from 'node:timers/promises';

import { Cluster, Redis } from 'ioredis';
import { IdempotencyService, type LockService, type LockStore } from 'nestjs-distributed-lock';
import { redisIdempotencyStore, redisStore } from 'nestjs-distributed-lock/redis';

import { until } from '../servers/eventually.js';
import {
  describeWithServers,
  startRedisCluster,
  type RedisCluster,
  type RedisServer,
} from '../servers/index.js';
import { redisCommand } from '../servers/redis-command.js';
import { bound } from './memory-harness.js';
import { Opened } from './opened.js';
import { SectionHistory } from './section-history.js';

const PATIENCE_MS = 30_000;
const ROUNDS = 3;
/** What a busy machine can keep, and a test can wait for. */
const TTL_MS = 5_000;
const OWNER_OF_K = 'lock:{k}:owner';

describeWithServers(['redis'], 'a cluster of Redis that changes', () => {
  let redis: RedisCluster;
  let client: Cluster;
  /** To each of the nodes, without a look at who has which slot. */
  let direct: Redis[];
  const opened = new Opened();

  beforeAll(async () => {
    redis = await startRedisCluster();
    client = new Cluster([...redis.addresses], { enableAutoPipelining: true });
    client.on('error', () => undefined);
    direct = redis.nodes.map(({ port }) => new Redis(port, '127.0.0.1'));
    for (const each of direct) each.on('error', () => undefined); // one of them is killed
  });
  afterAll(async () => {
    for (const each of [client, ...direct]) each.disconnect();
    await redis.stop();
  });

  it('is refused at boot as a single server, and when one of its nodes may evict; no replica confirms there', async () => {
    const [first, , third] = redis.nodes as [RedisServer, RedisServer, RedisServer];
    const single = opened.store(redisStore({ url: first.url }));
    await expect(single.open?.()).rejects.toThrow(/it is a node of a Redis Cluster/);
    await opened.store(own()).open?.();
    await redisCommand(third.port, 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    for (const store of [opened.store(own()), opened.store(redisStore({ client }))])
      await expect(store.open?.()).rejects.toThrow(`${third.port} cannot keep locks: under memory pressure`);
    await redisCommand(third.port, 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
    const strict = opened.store(redisStore({ cluster: redis.addresses, minReplicas: 1 }));
    await expect(strict.open?.()).rejects.toThrow(/has 0 replicas/);
    const claim = { key: 'strict', ownerId: 'a', ttlMs: 1_000 };
    await expect(strict.tryAcquire(claim, 4_000)).rejects.toThrow(/only 0 of 1 replicas/);
  });

  it('never has two owners, and tokens rise, while the slot of their lock moves from node to node (C064)', async () => {
    const history = new SectionHistory();
    const services = [own(), own(), redisStore({ client })].map((store) => opened.service(store));
    const done = new AbortController();
    const working = services.map((service) => history.fill(service, 'k', done.signal));
    await history.grownBy(15);
    const slot = await redis.slotOf(OWNER_OF_K);
    for (let round = 0; round < ROUNDS; round += 1) {
      await redis.move(slot, await anotherOwner(slot), () => pause(150));
      await history.grownBy(15);
    }
    done.abort();
    await Promise.all(working);
    expect(history.faults()).toEqual([]);
  });

  it('lets nobody in beside an owner whose lock moves; a client that takes the lock for free where it has not arrived is seen to get in', async () => {
    for (const [store, faults] of [
      [own(), []],
      [hasty(own()), [expect.stringMatching(/^two owners/)]],
    ] as const) {
      expect(await faultsOfMove(opened.service(own()), opened.service(store))).toEqual(faults);
    }
  });

  it('renews a lease whose slot is on its way, and releases it', async () => {
    const service = opened.service(own());
    const lease = await service.acquire('moving', { ttlMs: 60_000 });
    const slot = await redis.slotOf('lock:{moving}:owner');
    await redis.move(slot, await anotherOwner(slot), () => lease.extend(60_000));
    expect(await lease.release()).toBe('released');
    await (await service.acquire('moving')).release();
  });

  it('wakes who waits for a lock, whichever node it lies on, and whoever the client belongs to', async () => {
    for (const waiting of [opened.store(own()), opened.store(redisStore({ client }))]) {
      const releasing = opened.store(own());
      await waiting.open?.();
      for (const key of await oneKeyPerNode()) {
        const claim = { key, ownerId: 'a', ttlMs: 200_000 };
        await releasing.tryAcquire(claim, PATIENCE_MS);
        let wakes = 0;
        const watch = waiting.watch?.(key, () => (wakes += 1));
        await until('it hears', () => watch?.hears === true);
        const before = wakes;
        await releasing.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
        await until('it was woken', () => wakes > before);
        watch?.stop();
      }
    }
  });

  it('keeps the leases of the nodes that are there when one is killed, and takes locks there again when it is back', async () => {
    const service = opened.service(own());
    const keys = await oneKeyPerNode();
    const leases = await Promise.all(keys.map((key) => service.acquire(key, { ttlMs: TTL_MS })));
    const victim = await redis.ownerOf(await redis.slotOf(`lock:{${keys[0] ?? ''}}:owner`));
    await victim.kill();
    const [lost, ...rest] = leases;
    await new Promise((resolve) => lost?.signal.addEventListener('abort', resolve));
    for (const lease of rest) await lease.extend(TTL_MS);
    await victim.start();
    const again = await service.acquire(keys[0] ?? '', { waitMs: 60_000 });
    expect(again.token).toBeGreaterThan(lost?.token as number);
    for (const lease of [again, ...rest]) expect(await lease.release()).toBe('released');
  });

  it('keeps idempotency records on all of its nodes, also of claims that come together', async () => {
    const store = redisIdempotencyStore({ cluster: redis.addresses });
    opened.atEnd(() => store.close());
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
    await expect(opened.store(own()).tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(
      /Redis key "lock:\{foreign\}:owner" is not usable/,
    );
  });

  /** What is wrong with what both saw when the second asks again and again for a lock of the first that moves. */
  async function faultsOfMove(owner: LockService, intruder: LockService): Promise<string[]> {
    const history = new SectionHistory();
    const held = await owner.acquire('k', { ttlMs: 60_000, waitMs: 60_000 });
    const leave = history.enter(held.token);
    const slot = await redis.slotOf(OWNER_OF_K);
    let tries = 0;
    await redis.move(slot, await anotherOwner(slot), async () => {
      tries += 1;
      const got = await intruder.tryAcquire('k').catch(() => null); // refused, or nobody could tell
      if (got) history.enter(got.token);
    });
    leave();
    expect(tries).toBe(2);
    expect(await held.release()).toBe('released');
    return history.faults();
  }

  /** As careless clients are: a lock that somebody has is free all the same where another node has not received it yet. */
  function hasty(store: LockStore): LockStore {
    return {
      ...bound(store),
      tryAcquire: async (claim, timeoutMs) => {
        const answer = await store.tryAcquire(claim, timeoutMs);
        const goes = answer.kind === 'busy' && (await isOnItsWay(OWNER_OF_K));
        return goes ? { kind: 'granted', token: Date.now() * 1_000 } : answer;
      },
    };
  }

  /** Whether of two nodes which serve its slot one has the key, and the other has not. */
  async function isOnItsWay(redisKey: string): Promise<boolean> {
    const answers = await Promise.all(direct.map((node) => existsAt(node, redisKey)));
    return answers.includes(1) && answers.includes(0);
  }

  function own(): LockStore {
    return redisStore({ cluster: redis.addresses.slice(0, 2) });
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

/** 1 or 0 where the slot is, comes or goes; undefined on other nodes. */
async function existsAt(node: Redis, redisKey: string): Promise<unknown> {
  const answers = await node.pipeline().call('ASKING').exists(redisKey).exec();
  const [error, count] = answers?.[1] ?? [];
  return error ? undefined : count;
}
