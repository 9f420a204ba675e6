import { Cluster } from 'ioredis';
import { redisStore } from 'nestjs-distributed-lock/redis';
import type { LockStoreHarness } from 'nestjs-distributed-lock/testing';

import { describeWithServers, startRedisCluster, type RedisCluster } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

describeWithServers(['redis'], 'the Redis store on a cluster, through the address of one node', () => {
  let redis: RedisCluster;
  let raw: Cluster;
  let harness: LockStoreHarness;

  beforeAll(async () => {
    redis = await startRedisCluster();
    raw = new Cluster([...redis.addresses]);
    raw.on('error', () => undefined); // the restart case
    harness = {
      connect: () => Promise.resolve(redisStore({ cluster: redis.addresses.slice(0, 1) })),
      evict: async (key) => void (await raw.del(`lock:{${key}}:owner`)),
      restart: async () => {
        for (const node of redis.nodes) await node.kill();
        for (const node of redis.nodes) await node.start();
        await redis.complete();
      },
      tokenFloor: () => (Date.now() - 60_000) * 1_000,
      tellsRemainingTime: true,
      peek: async (key) => ((await raw.exists(`lock:{${key}}:owner`)) === 1 ? 'taken' : 'free'),
    };
  });
  afterAll(async () => {
    raw.disconnect();
    await redis.stop();
  });

  itConforms(() => harness);
});
