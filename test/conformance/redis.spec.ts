import { Redis } from 'ioredis';
import { redisStore, type RedisStoreOptions } from 'nestjs-distributed-lock/redis';
import type { LockStoreHarness } from 'nestjs-distributed-lock/testing';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

/** What the two ways to configure the store differ in. */
interface Setup {
  readonly title: string;
  /** All prefixes that end up before the key. */
  readonly prefix: string;
  options(url: string, clients: Redis[]): RedisStoreOptions;
}

const setups: readonly Setup[] = [
  { title: 'by url', prefix: 'lock:', options: (url) => ({ url }) },
  {
    title: "on the application's client with a keyPrefix (C098)",
    prefix: 'app:billing:',
    options: (url, clients) => ({ client: clientOf(clients, url, 'app:'), keyPrefix: 'billing:' }),
  },
];

describeWithServers(['redis'], 'the Redis store', () => {
  describe.each(setups)('$title', ({ prefix, options }) => {
    const clients: Redis[] = [];
    let server: RedisServer;
    let raw: Redis;
    let harness: LockStoreHarness;

    beforeAll(async () => {
      server = await startRedis();
      raw = clientOf(clients, server.url);
      harness = {
        connect: () => Promise.resolve(redisStore(options(server.url, clients))),
        evict: async (key) => void (await raw.del(`${prefix}{${key}}:owner`)),
        restart: async () => {
          await server.kill();
          await server.start();
        },
        tokenFloor: () => (Date.now() - 60_000) * 1_000,
        tellsRemainingTime: true,
        peek: async (key) => ((await raw.exists(`${prefix}{${key}}:owner`)) === 1 ? 'taken' : 'free'),
      };
    });
    afterAll(async () => {
      for (const client of clients) client.disconnect();
      await server.stop();
    });

    itConforms(() => harness);
  });
});

function clientOf(clients: Redis[], url: string, keyPrefix = ''): Redis {
  const client = new Redis(url, { keyPrefix });
  client.on('error', () => undefined); // the restart case
  clients.push(client);
  return client;
}
