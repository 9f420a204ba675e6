import { Redis } from 'ioredis';
import { redlockStore } from 'nestjs-distributed-lock/redis';
import type { LockStoreHarness } from 'nestjs-distributed-lock/testing';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

/** The conformance suite on `size` servers, of which the last `away` are killed before its first case. */
export function redlockConforms(size: number, away: number): void {
  describeWithServers(['redis'], `the Redlock store on ${size} servers, of which ${away} are away`, () => {
    let servers: RedisServer[];
    let live: RedisServer[];
    let raw: Redis[];
    let harness: LockStoreHarness;

    beforeAll(async () => {
      servers = await Promise.all(Array.from({ length: size }, () => startRedis({ appendOnly: true })));
      const urls = servers.map(({ url }) => url);
      const founder = redlockStore({ urls });
      await founder.open?.();
      await founder.close();
      await Promise.all(servers.slice(size - away).map((server) => server.kill()));
      live = servers.slice(0, size - away);
      raw = live.map(({ url }) => new Redis(url));
      for (const client of raw) client.on('error', () => undefined); // the restart case
      harness = {
        connect: () => Promise.resolve(redlockStore({ urls })),
        evict: async (key) => void (await Promise.all(raw.map((client) => client.del(ownerOf(key))))),
        restart: async () => {
          await Promise.all(live.map((server) => server.kill()));
          await Promise.all(live.map((server) => server.start()));
        },
        tokenFloor: () => (Date.now() - 60_000) * 1_000,
        tellsRemainingTime: true,
        peek: async (key) => {
          const found = await Promise.all(raw.map((client) => client.exists(ownerOf(key))));
          return found.filter((count) => count === 1).length > size / 2 ? 'taken' : 'free';
        },
      };
    });
    afterAll(async () => {
      for (const client of raw) client.disconnect();
      await Promise.all(servers.map((server) => server.stop()));
    });

    itConforms(() => harness);
  });
}

function ownerOf(key: string): string {
  return `redlock:{${key}}:owner`;
}
