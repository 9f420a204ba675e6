import { join } from 'node:path';

import { LockService } from 'nestjs-distributed-lock';

import {
  describeWithServers,
  startEtcd,
  startRedis,
  startStopping,
  startZooKeeper,
  type StoppingProcess,
  type TestServer,
} from '../servers/index.js';
import type { HolderAnswer, HolderOrder } from './holder-process.js';
import { storeAt } from './store-at.js';
import { succeed } from './succession.js';

/** Kinds of server whose client and leases are not an SQL database's, with a ttl that they all can keep. */
const kinds = [
  { kind: 'redis', start: () => startRedis() },
  { kind: 'etcd', start: () => startEtcd() },
  { kind: 'zookeeper', start: () => startZooKeeper() },
] as const;

const TTL_MS = 2_000;
const SCRIPT = join(__dirname, 'holder-process.ts');

describe.each(kinds)('a process that holds a lock on $kind', ({ kind, start }) => {
  describeWithServers([kind], 'and gets into trouble', () => {
    let server: TestServer;
    let successor: LockService;
    let holder: StoppingProcess<HolderAnswer>;

    beforeAll(async () => {
      server = await start();
      successor = new LockService({ stores: { default: storeAt({ place: server.url }) } });
      await successor.open();
    });
    afterAll(async () => {
      await successor.close(0);
      await server.stop();
    });
    beforeEach(() => {
      const order: HolderOrder = { place: server.url, key: 'k', ttlMs: TTL_MS };
      holder = startStopping<HolderAnswer>(SCRIPT, order);
    });
    afterEach(() => holder.kill());

    it('by SIGKILL is succeeded within its ttl and a second (C126)', async () => {
      await holder.stopped();
      holder.kill();
      await (await succeed(successor, 'k', TTL_MS)).release();
    });

    it('by a stop beyond its ttl learns of its loss at the first read, before it calls anybody (C003)', async () => {
      await holder.stopped();
      const next = await successor.acquire('k', { waitMs: 60_000 });
      const answer = await holder.answer();
      expect(answer).toMatchObject({ firstRead: 'LEASE_LOST', section: 'LEASE_LOST' });
      expect(next.token).toBeGreaterThan(answer.token);
      next.assertHeld();
      expect(await next.release()).toBe('released');
    });
  });
});
