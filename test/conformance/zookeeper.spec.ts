import { zookeeperStore } from 'nestjs-distributed-lock/zookeeper';
import type { LockStoreHarness } from 'nestjs-distributed-lock/testing';

import { describeWithServers, startZooKeeper, type TestServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';
import { ZooKeeperAdmin } from './zookeeper-admin.js';

/** Larger than any token of the stores that people move from. */
const OFFSET = 2_000_000_000_000_000;

describeWithServers(['zookeeper'], 'the ZooKeeper store', () => {
  let server: TestServer;
  let harness: LockStoreHarness;

  beforeAll(async () => {
    server = await startZooKeeper();
    const admin = (): ZooKeeperAdmin => new ZooKeeperAdmin(server);
    harness = {
      connect: async () => {
        const store = zookeeperStore({ hosts: `${server.host}:${server.port}`, tokenOffset: OFFSET });
        await store.open?.();
        return store;
      },
      evict: (key) => admin().remove(pathOf(key)),
      restart: async () => {
        await server.kill();
        await server.start();
      },
      tokenFloor: () => OFFSET,
      tellsRemainingTime: false,
      endsLateByMs: 500,
      peek: async (key) => ((await admin().has(pathOf(key))) ? 'taken' : 'free'),
    };
  });
  afterAll(() => server.stop());

  itConforms(() => harness);
});

function pathOf(key: string): string {
  return `/locks/${encodeURIComponent(key)}`;
}
