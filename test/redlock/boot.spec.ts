import { setImmediate as turn } from 'node:timers/promises';

import { Redis } from 'ioredis';
import {
  redisStore,
  redlockStore,
  type RedisClient,
  type RedlockStoreOptions,
} from 'nestjs-distributed-lock/redis';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';

const claim = { key: 'k', ownerId: 'a', ttlMs: 10_000 };

describe('redlockStore', () => {
  const [a, b, c, d] = [1, 2, 3, 4].map((port) => `redis://127.0.0.1:${port}`) as [
    string,
    string,
    string,
    string,
  ];

  it.each<[string, object, RegExp]>([
    ['neither urls nor clients', {}, /needs either urls or clients/],
    ['no server', { urls: [] }, /0 servers; give it 3, 5 or 7/],
    ['one server', { urls: [a] }, /For one server use redisStore/],
    ['an even number', { urls: [a, b, c, d] }, /4 servers/],
    ['one address twice', { urls: [a, b, a] }, /the same server twice/],
    ['an address of something else', { urls: [a, b, 'http://127.0.0.1'] }, /none of Redis/],
    ['braces in the prefix', { urls: [a, b, c], keyPrefix: '{x}:' }, /without braces/],
  ])('refuses %s', (_what, options, message) => {
    expect(() => redlockStore(options as RedlockStoreOptions)).toThrow(message);
  });
});

describeWithServers(['redis'], 'Redlock at boot', () => {
  let servers: RedisServer[];
  let raw: Redis[];
  let urls: string[];

  beforeAll(async () => {
    servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()));
    raw = servers.map(({ url }) => new Redis(url));
    for (const client of raw) client.on('error', () => undefined);
    urls = servers.map(({ url }) => url);
  });
  beforeEach(async () => void (await Promise.all(raw.map((client) => client.flushall()))));
  afterAll(async () => {
    for (const client of raw) client.disconnect();
    await Promise.all(servers.map((server) => server.stop()));
  });

  async function refusalOf(options: RedlockStoreOptions): Promise<unknown> {
    const store = redlockStore(options);
    const refusal = await store.open?.().catch((error: unknown) => error);
    await store.close();
    return refusal;
  }

  it('refuses one server under two addresses, which would vote twice (C139)', async () => {
    const again = urls[0]?.replace('127.0.0.1', 'localhost') as string;
    const refusal = await refusalOf({ urls: [urls[0] as string, urls[1] as string, again] });
    expect(refusal).toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    expect(String(refusal)).toContain(`${urls[0]} and ${again} are the same server`);
  });

  it('refuses replicas and evicting servers, and names each of them (C139, C102)', async () => {
    await raw[1]?.replicaof('127.0.0.1', (servers[0] as RedisServer).port);
    await raw[2]?.config('SET', 'maxmemory-policy', 'allkeys-lru');
    try {
      const refusal = await refusalOf({ urls: urls.slice(0, 3) });
      expect(refusal).toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
      expect(String(refusal)).toContain(`Redis at ${urls[1]} cannot keep locks: its role is "slave"`);
      expect(String(refusal)).toContain(`Redis at ${urls[2]} cannot keep locks: under memory pressure`);
    } finally {
      await raw[1]?.replicaof('NO', 'ONE');
      await raw[2]?.config('SET', 'maxmemory-policy', 'noeviction');
    }
  });

  it('refuses servers of another set, of which no two majorities need to meet', async () => {
    expect(await refusalOf({ urls: urls.slice(0, 3) })).toBeUndefined();
    const refusal = await refusalOf({ urls });
    expect(refusal).toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    expect(String(refusal)).toContain('it is one of 3 servers, and 5 are given here');
  });

  it('needs all servers for its first use, then a majority, and names those that are away', async () => {
    const away = servers[2] as RedisServer;
    await away.kill();
    const first = await refusalOf({ urls: urls.slice(0, 3) });
    expect(first).toMatchObject({ code: 'STORE_UNAVAILABLE' });
    expect(String(first)).toContain(`${away.url}: not connected`);
    await away.start();
    expect(await refusalOf({ urls: urls.slice(0, 3) })).toBeUndefined();
    await away.kill();
    expect(await refusalOf({ urls: urls.slice(0, 3) })).toBeUndefined();
    await servers[1]?.kill();
    const majority = await refusalOf({ urls: urls.slice(0, 3) });
    expect(majority).toMatchObject({ code: 'STORE_UNAVAILABLE' });
    expect(String(majority)).toContain('2 of 3 Redis servers gave no answer');
    await away.start();
    await servers[1]?.start();
  });

  it('is founded by many processes at once, and keeps apart from what redisStore() wrote', async () => {
    const other = redisStore({ url: urls[0] as string });
    await other.tryAcquire({ ...claim, ownerId: 'other' }, 1_000);
    const stores = Array.from({ length: 8 }, () => redlockStore({ urls }));
    await Promise.all(stores.map(async (store) => store.open?.()));
    const answers = await Promise.all(
      stores.map((store, i) => store.tryAcquire({ ...claim, ownerId: `owner ${i}` }, 2_000)),
    );
    expect(answers.filter(({ kind }) => kind === 'granted')).toHaveLength(1);
    await Promise.all([other, ...stores].map((store) => store.close()));
  });

  it.each([
    {
      what: 'one command per server for a lock when the servers agree',
      fences: [100, 100, 100],
      fewest: 3,
      most: 3,
    },
    { what: 'two at most when they do not', fences: [100, 200, 300], fewest: 4, most: 6 },
  ])('takes $what', async ({ fences, fewest, most }) => {
    const network = new CountedNetwork(raw.slice(0, 3));
    const store = redlockStore({ clients: network.clients });
    const lock = async (key: string): Promise<void> => {
      expect(await store.tryAcquire({ ...claim, key }, 2_000)).toMatchObject({ kind: 'granted' });
      await network.silence(); // the last server's answer is not waited for
    };
    await lock('warm'); // from here on the servers know the scripts
    await Promise.all(fences.map((fence, i) => (raw[i] as Redis).set('redlock:{k}:fence', fence)));
    network.sent = 0;
    await lock('k');
    expect(network.sent).toBeGreaterThanOrEqual(fewest);
    expect(network.sent).toBeLessThanOrEqual(most);
    await store.close();
  });
});

/** Clients whose commands are counted. */
class CountedNetwork {
  sent = 0;
  readonly clients: readonly RedisClient[];
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(servers: readonly Redis[]) {
    this.clients = servers.map((server) => ({
      eval: (text, keys, ...more) => this.#count(server.eval(text, keys, ...more)),
      evalsha: (digest, keys, ...more) => this.#count(server.evalsha(digest, keys, ...more)),
      info: () => server.info(),
    }));
  }

  /** Resolves when every command has been answered, and no answer has led to another one. */
  async silence(): Promise<void> {
    while (this.#underWay.size > 0) {
      await Promise.allSettled(this.#underWay);
      await turn();
    }
  }

  #count(answer: Promise<unknown>): Promise<unknown> {
    this.sent += 1;
    this.#underWay.add(answer);
    return answer.finally(() => this.#underWay.delete(answer));
  }
}
