import { setTimeout as pause } from 'node:timers/promises';

import type { LockService, LockStore } from 'nestjs-distributed-lock';
import { redisStore } from 'nestjs-distributed-lock/redis';

import { expectTaken } from '../faults/expect-taken.js';
import { eventually, until } from '../servers/eventually.js';
import { describeWithServers, startRedisSentinel, type RedisSentinel } from '../servers/index.js';
import { redisCommand } from '../servers/redis-command.js';
import { Opened } from './opened.js';

const PATIENCE_MS = 30_000;
/** No renewal is due, and no lease ends, while a test runs. */
const LONG_TTL_MS = 600_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 30_000 };

describeWithServers(['redis'], 'a failover of Redis', () => {
  let redis: RedisSentinel;
  const opened = new Opened();

  beforeAll(async () => void (redis = await startRedisSentinel()));
  afterAll(() => redis.stop());

  it('is refused at boot where the address is that of a sentinel or a replica, or replicas are too few', async () => {
    const master = await redis.master();
    const replica = redis.servers.find((server) => server !== master);
    const { host, port } = redis.sentinels[0] as { host: string; port: number };
    await expect(opening({ url: `redis://${host}:${port}` })).rejects.toThrow(/it is a Sentinel/);
    await expect(opening({ url: replica?.url ?? '' })).rejects.toThrow(/its role is "slave"/);
    await expect(opening({ ...whereabouts(), minReplicas: 3 })).rejects.toThrow(/has 2 replicas/);
    await opening({ ...whereabouts(), minReplicas: 2 });
    await redisCommand(master.port, 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    await expect(opening(whereabouts())).rejects.toThrow(/may evict locks/);
    await redisCommand(master.port, 'CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
  });

  it('by a frozen master leaves leases and tokens as they are, and nothing has to be started again (C009)', async () => {
    const [one, other] = [serviceOf({ minReplicas: 1 }), serviceOf({})];
    const tokens = [await tokenOf(one), await tokenOf(other)];
    const held = await one.acquire('held', { ttlMs: LONG_TTL_MS });
    const watching = storeOf({});
    let wakes = 0;
    const watch = watching.watch?.('w', () => (wakes += 1));
    await until('it hears', () => watch?.hears === true);

    const old = await redis.master();
    old.pause();
    const waiting = [one.acquire('k', { waitMs: 60_000 }), other.acquire('k', { waitMs: 60_000 })];
    await redis.failedOver(old);
    for (const lease of await inTurn(waiting)) tokens.push(lease);
    await old.kill();
    held.assertHeld();
    await eventually(() => held.extend(LONG_TTL_MS), 60_000); // on the new master
    await expectTaken(other, 'held');
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    expect(await held.release()).toBe('released');

    await until('it hears of releases on the new master', async () => {
      const before = wakes;
      await (await one.acquire('w', { waitMs: PATIENCE_MS })).release();
      await pause(100); // the message comes beside the answer, before or after it
      return wakes > before && watch?.hears === true;
    });
    watch?.stop();
  });

  it('may grant a lock twice when the replica had not heard of it; the later token is higher, and minReplicas says no before', async () => {
    const master = await redis.master();
    const replica = await onlyReplicaOf(master);
    const [loose, strict, next] = [serviceOf({}), serviceOf({ minReplicas: 1 }), serviceOf({})];
    for (const service of [loose, strict, next]) await tokenOf(service);
    replica.pause();
    await redisCommand(master.port, 'CLIENT', 'KILL', 'TYPE', 'replica');
    const refusal: unknown = await strict.acquire('s', { waitMs: 4_000 }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({
      code: 'STORE_UNAVAILABLE',
      cause: { message: expect.stringMatching(/only 0 of 1 replicas/) },
    });
    await until('it was given back', async () => {
      return (await redisCommand(master.port, 'EXISTS', 'lock:{s}:owner')) === 0;
    });
    const first = await loose.acquire('k', { ttlMs: LONG_TTL_MS });
    await master.kill();
    replica.resume();
    await redis.failedOver(master);
    const second = await next.acquire('k', { waitMs: 60_000 });
    first.assertHeld(); // both believe: from here on only the fence decides
    expect(second.token).toBeGreaterThan(first.token);
    await until('the first owner has heard of it', async () => {
      const answer: unknown = await first.extend(LONG_TTL_MS).catch((error: unknown) => error);
      return (answer as { readonly code?: string }).code === 'LEASE_LOST';
    });
    second.assertHeld();
    expect(await second.release()).toBe('released');
  });

  it('names the key that holds a value of another type, on whatever server is master', async () => {
    const { port } = await redis.master();
    await redisCommand(port, 'LPUSH', 'lock:{invoice:1}:owner', 'x');
    await expect(storeOf({}).tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(
      /Redis key "lock:\{invoice:1\}:owner" is not usable/,
    );
  });

  function whereabouts(): Pick<RedisSentinel, 'sentinels' | 'name'> {
    return { sentinels: redis.sentinels, name: redis.name };
  }

  function storeOf(options: { readonly minReplicas?: number }): LockStore {
    return opened.store(redisStore({ ...whereabouts(), ...options }));
  }

  function serviceOf(options: { readonly minReplicas?: number }): LockService {
    return opened.service(redisStore({ ...whereabouts(), ...options }));
  }

  async function onlyReplicaOf(master: { readonly port: number }): Promise<RedisSentinel['servers'][number]> {
    await redis.followed(1);
    const found = redis.servers.find(({ port, pid }) => pid !== undefined && port !== master.port);
    if (!found) throw new Error('no replica is left');
    return found;
  }
});

async function opening(options: Parameters<typeof redisStore>[0]): Promise<void> {
  const store = redisStore(options);
  try {
    await store.open?.();
  } finally {
    await store.close();
  }
}

async function tokenOf(service: LockService): Promise<number> {
  const lease = await service.acquire('k', { waitMs: PATIENCE_MS });
  await lease.release();
  return lease.token;
}

type Acquiring = ReturnType<LockService['acquire']>;

/** The tokens in the order in which the leases were had; each is given back, so that the next one gets it. */
async function inTurn(waiting: readonly Acquiring[]): Promise<number[]> {
  const tokens: number[] = [];
  const take = async (acquiring: Acquiring): Promise<void> => {
    const lease = await acquiring;
    tokens.push(lease.token);
    await lease.release();
  };
  await Promise.all(waiting.map(take));
  return tokens;
}
