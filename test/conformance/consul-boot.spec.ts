import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';

import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { consulStore, type ConsulStoreOptions } from 'nestjs-distributed-lock/consul';

import { freePort } from '../servers/free-port.js';
import { describeWithServers, startConsul, type ConsulServer } from '../servers/index.js';
import { Opened } from './opened.js';

const MASTER = '5f0d7f3e-1111-4c4e-9a52-0d9a2f4a7c01';

describeWithServers(['consul'], 'the Consul store at boot', () => {
  const opened = new Opened();

  it('says where nothing answers', async () => {
    const nowhere = storeAt({ url: `http://127.0.0.1:${await freePort()}` });
    await expect(nowhere.open?.()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
  });

  it.each<[string, string, RegExp, RequestListener]>([
    [
      'that something else answers',
      'LOCK_CONFIG_INVALID',
      /not the API of Consul/,
      (_, response) => void response.writeHead(404).end('404 page not found'),
    ],
    [
      'that the servers have no leader',
      'STORE_UNAVAILABLE',
      /No cluster leader.*have a leader/s,
      (_, response) => void response.writeHead(500).end('No cluster leader'),
    ],
    ['that nothing is said', 'STORE_UNAVAILABLE', /no answer/, () => undefined],
  ])('says %s', async (_, code, message, listener) => {
    const other = createServer(listener);
    other.listen(0, '127.0.0.1');
    await once(other, 'listening');
    opened.atEnd(() => Promise.resolve(other.close(() => undefined)));
    opened.atEnd(() => Promise.resolve(other.closeAllConnections()));
    const store = storeAt({ url: `http://127.0.0.1:${(other.address() as AddressInfo).port}` });
    await expect(store.open?.()).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
  });

  it("refuses a ttl below Consul's own shortest session, and one above its longest", async () => {
    const server = await started({ minTtlMs: 10_000 });
    const service = new LockService({ stores: { default: storeAt({ url: server.url }) } });
    await service.open();
    for (const [ttlMs, limit] of [
      [9_999, 'at least 10000'],
      [86_400_001, 'at most 86400000'],
    ] as const) {
      await expect(service.acquire('k', { ttlMs })).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining(limit),
      });
    }
    for (const ttlMs of [10_000, 86_400_000]) await (await service.acquire('k', { ttlMs })).release();
    await service.close(0);
    expect(await server.ask('GET', 'session/list')).toEqual([]);
    expect(await server.ask('GET', 'kv/?keys')).toEqual([]);
  });

  it('learns a shorter one from servers that are told to keep it', async () => {
    const server = await started({ minTtlMs: 300 });
    const store = storeAt({ url: server.url });
    await store.open?.();
    expect(store).toMatchObject({ minTtlMs: 300, maxTtlMs: 86_400_000 });
  });

  it('says what a token must be allowed, works with one that is, and never shows it', async () => {
    const server = await started({ masterToken: MASTER });
    const token = await tokenFor(
      server,
      'key_prefix "lock/" { policy = "write" } session_prefix "" { policy = "write" }',
    );
    const noKeys = await tokenFor(server, 'session_prefix "" { policy = "write" }');
    const noSessions = await tokenFor(server, 'key_prefix "lock/" { policy = "write" }');
    const stranger = '5f0d7f3e-2222-4c4e-9a52-0d9a2f4a7c01';
    const refused: [Partial<ConsulStoreOptions>, RegExp][] = [
      [{}, /session:write/],
      [{ token: noKeys }, /key:write/],
      [{ token: noSessions }, /session:write/],
      [{ token, keyPrefix: 'other/' }, /keys that begin with "other\/"/],
      [{ token: stranger }, /does not know this ACL token/],
    ];
    for (const [options, message] of refused) {
      const refusal: unknown = await storeAt({ url: server.url, ...options })
        .open?.()
        .catch((error: unknown) => error);
      expect(refusal).toMatchObject({ code: 'LOCK_CONFIG_INVALID', message: expect.stringMatching(message) });
      expect(String(refusal) + JSON.stringify(refusal)).not.toMatch(new RegExp(`${token}|${stranger}`));
    }
    const service = new LockService({ stores: { default: storeAt({ url: server.url, token }) } });
    await service.open();
    const lease = await service.acquire('k');
    await lease.extend(20_000);
    expect(await lease.release()).toBe('released');
    await service.close(0);
  });

  async function started(options: Parameters<typeof startConsul>[0]): Promise<ConsulServer> {
    return opened.server(await startConsul(options));
  }

  function storeAt(options: ConsulStoreOptions): LockStore {
    return opened.store(consulStore(options));
  }
});

async function tokenFor(server: ConsulServer, rules: string): Promise<string> {
  const policy = (await server.ask('PUT', 'acl/policy', {
    Name: `p${Math.random()}`.replace('.', ''),
    Rules: rules,
  })) as {
    ID: string;
  };
  const { SecretID } = (await server.ask('PUT', 'acl/token', { Policies: [{ ID: policy.ID }] })) as {
    SecretID: string;
  };
  return SecretID;
}
