import { consulStore } from 'nestjs-distributed-lock/consul';
import type { LockStoreHarness } from 'nestjs-distributed-lock/testing';

import { describeWithServers, startConsul, type ConsulServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

/** Larger than any token of the stores that people move from. */
const OFFSET = 2_000_000_000_000_000;

describeWithServers(['consul'], 'the Consul store', () => {
  let server: ConsulServer;
  let harness: LockStoreHarness;

  beforeAll(async () => {
    server = await startConsul();
    harness = {
      connect: async () => {
        const store = consulStore({ url: server.url, tokenOffset: OFFSET });
        await store.open?.();
        return store;
      },
      evict: async (key) => void (await server.ask('DELETE', pathOf(key))),
      restart: async () => {
        await server.kill();
        await server.start();
      },
      tokenFloor: () => OFFSET,
      tellsRemainingTime: false,
      endsLateByMs: 500, // sessions are kept for twice their ttl, which is 400 ms where a case waits for its end
      peek: async (key) => ((await server.ask('GET', pathOf(key))) === undefined ? 'free' : 'taken'),
    };
  });
  afterAll(() => server.stop());

  itConforms(() => harness, 200);
});

/** What the cases need of the names, spelled out once more: keys of theirs that are looked at consist of these. */
function pathOf(key: string): string {
  return `kv/lock/${key.replaceAll(':', '.3A')}`;
}
