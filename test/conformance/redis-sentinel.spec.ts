import { Redis } from 'ioredis';
import { redisStore } from 'nestjs-distributed-lock/redis';
import type { LockStoreHarness } from 'nestjs-distributed-lock/testing';

import { describeWithServers, startRedisSentinel, type RedisSentinel } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

const PREFIX = 'app:billing:';

describeWithServers(['redis'], 'the Redis store behind sentinels, on a client of the application', () => {
  const clients: Redis[] = [];
  let redis: RedisSentinel;
  let raw: Redis;
  let harness: LockStoreHarness;

  beforeAll(async () => {
    redis = await startRedisSentinel();
    raw = clientOf(clients, redis);
    harness = {
      connect: () => {
        const client = clientOf(clients, redis, 'app:'); // (C098)
        return Promise.resolve(redisStore({ client, keyPrefix: 'billing:', minReplicas: 1 }));
      },
      evict: async (key) => void (await raw.del(`${PREFIX}{${key}}:owner`)),
      restart: async () => {
        const old = await redis.master();
        await old.kill();
        await redis.failedOver(old);
      },
      tokenFloor: () => (Date.now() - 60_000) * 1_000,
      tellsRemainingTime: true,
      peek: async (key) => ((await raw.exists(`${PREFIX}{${key}}:owner`)) === 1 ? 'taken' : 'free'),
    };
  });
  afterAll(async () => {
    for (const client of clients) client.disconnect();
    await redis.stop();
  });

  itConforms(() => harness);
});

function clientOf(clients: Redis[], { sentinels, name }: RedisSentinel, keyPrefix = ''): Redis {
  const client = new Redis({ sentinels: [...sentinels], name, keyPrefix, enableAutoPipelining: true });
  client.on('error', () => undefined); // the restart case
  clients.push(client);
  return client;
}
