import { etcdStore } from 'nestjs-distributed-lock/etcd';
import type { LockStoreHarness } from 'nestjs-distributed-lock/testing';

import { describeWithServers, startEtcd, type EtcdServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

/** Larger than any token of the stores that people move from. */
const OFFSET = 2_000_000_000_000_000;

describeWithServers(['etcd'], 'the etcd store', () => {
  let server: EtcdServer;
  let harness: LockStoreHarness;

  beforeAll(async () => {
    server = await startEtcd();
    harness = {
      connect: async () => {
        const store = etcdStore({ hosts: server.url, tokenOffset: OFFSET });
        await store.open?.();
        return store;
      },
      evict: async (key) => void (await server.ask('kv/deleterange', at(key))),
      restart: async () => {
        await server.kill();
        await server.start();
      },
      tokenFloor: () => OFFSET,
      tellsRemainingTime: true,
      endsLateByMs: 500,
      peek: async (key) => ((await server.ask('kv/range', at(key)))['count'] === '1' ? 'taken' : 'free'),
    };
  });
  afterAll(() => server.stop());

  itConforms(() => harness);
});

function at(key: string): { readonly key: string } {
  return { key: Buffer.from(`lock/${key}`).toString('base64') };
}
