import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { etcdStore } from 'nestjs-distributed-lock/etcd';

import { freePort } from '../servers/free-port.js';
import { describeWithServers, startEtcd } from '../servers/index.js';

describeWithServers(['etcd'], 'the etcd store at boot', () => {
  /** Ended after each test, also when it failed. */
  const ends: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });

  it('says where nothing answers', async () => {
    const nowhere = storeAt(await freePort());
    await expect(nowhere.open?.()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
  });

  it('says that the gateway is missing where something else answers', async () => {
    const other = createServer((_, response) => response.writeHead(404).end('404 page not found'));
    other.listen(0, '127.0.0.1');
    await once(other, 'listening');
    ends.push(async () => void other.close());
    await expect(storeAt((other.address() as AddressInfo).port).open?.()).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('enable-grpc-gateway'),
    });
  });

  it('learns the shortest lease of the server, and refuses a shorter ttl', async () => {
    const slow = await startEtcd({ electionMs: 2_000 });
    ends.push(() => slow.stop());
    const service = new LockService({ stores: { default: storeAt(slow.port) } });
    await service.open();
    await expect(service.acquire('k', { ttlMs: 2_500 })).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('at least 3000'),
    });
    await (await service.acquire('k', { ttlMs: 3_000 })).release();
    await service.close(0);
  });

  function storeAt(port: number): LockStore {
    const store = etcdStore({ hosts: `http://127.0.0.1:${port}` });
    ends.push(() => store.close());
    return store;
  }
});
