import { once } from 'node:events';

import { Redis } from 'ioredis';
import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { redisStore, type RedisClient } from 'nestjs-distributed-lock/redis';

import { freePort } from '../servers/free-port.js';
import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';

const PATIENCE_MS = 30_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 200_000 };
const OWNER = 'lock:{invoice:1}:owner';
const FENCE = 'lock:{invoice:1}:fence';

describeWithServers(['redis'], 'the Redis store on its server', () => {
  let server: RedisServer;
  let raw: Redis;
  let store: LockStore;

  beforeAll(async () => {
    server = await startRedis();
    raw = new Redis(server.url);
    store = redisStore({ url: server.url });
  });
  beforeEach(async () => void (await raw.flushall()));
  afterAll(async () => {
    await store.close();
    raw.disconnect();
    await server.stop();
  });

  it('sends one command to take a lock, one to renew three, and one to give a lock back', async () => {
    const held = [claim, { ...claim, key: 'b' }, { ...claim, key: 'c' }];
    for (const each of held) await store.tryAcquire(each, PATIENCE_MS);
    await store.renew(held, PATIENCE_MS);
    await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS); // from here on the server knows every script
    const sent = await commandsDuring(async () => {
      const service = new LockService({ stores: { default: { ...bare(store) } } });
      const lease = await service.acquire('k');
      await lease.release();
      await store.renew(held, PATIENCE_MS);
    });
    expect(sent).toEqual(['evalsha', 'evalsha', 'evalsha']);
  });

  it('never writes a key without an end: the owner lives for the ttl, the token for a month longer', async () => {
    await store.tryAcquire(claim, PATIENCE_MS);
    expect(await raw.pttl(OWNER)).toBeGreaterThan(claim.ttlMs / 2);
    expect(await raw.pttl(OWNER)).toBeLessThanOrEqual(claim.ttlMs);
    expect(await raw.pttl(FENCE)).toBeGreaterThan(30 * 24 * 3_600_000);
    await store.release({ ...claim, keepForMs: 100_000 }, PATIENCE_MS);
    expect(await raw.pttl(OWNER)).toBeGreaterThan(0);
    await store.tryAcquire({ ...claim, key: 'invoice:2' }, PATIENCE_MS);
    for (const key of await raw.keys('*')) expect(await raw.pttl(key)).toBeGreaterThan(0);
  });

  it.each([1, 99_999_999, 100_000_000, 1_795_900_000_000_000, 4_000_000_000_000_000, 9_007_199_254_740_980])(
    'counts on from the token %d without losing a digit (C114)',
    async (last) => {
      await raw.set(FENCE, String(last));
      for (let i = 1; i <= 10; i += 1) {
        const answer = await store.tryAcquire({ ...claim, ownerId: `owner ${i}` }, PATIENCE_MS);
        const token = answer.kind === 'granted' ? answer.token : 0;
        if (last > 2_000_000_000_000_000) expect(token).toBe(last + i);
        else expect(token).toBeGreaterThan(1_700_000_000_000_000);
        expect(await raw.get(FENCE)).toBe(String(token));
        await store.release({ ...claim, ownerId: `owner ${i}`, keepForMs: 0 }, PATIENCE_MS);
      }
    },
  );

  it('refuses to count beyond what a double holds, rather than repeat a token (C114)', async () => {
    await raw.set(FENCE, String(2 ** 53 - 1));
    await expect(store.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/its fence is beyond 2\^53/);
    expect(await raw.exists(OWNER)).toBe(0);
  });

  it('keeps tokens rising when Redis has lost everything', async () => {
    const before = await store.tryAcquire(claim, PATIENCE_MS);
    await raw.flushall();
    const after = await store.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS);
    if (before.kind !== 'granted' || after.kind !== 'granted') throw new Error('both should be granted');
    expect(after.token).toBeGreaterThan(before.token);
  });

  it.each([
    ['a list in place of the owner', () => raw.lpush(OWNER, 'x')],
    ['text that never expires in place of the owner', () => raw.set(OWNER, 'x')],
    ['a list in place of the token', () => raw.lpush(FENCE, 'x')],
    ['text in place of the token', () => raw.set(FENCE, 'x')],
  ])('names its key when it finds %s, and never calls that busy', async (_what, plant) => {
    await plant();
    await expect(store.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(
      /"lock:\{invoice:1\}:owner" is not usable/,
    );
  });

  it('renews the other leases of a batch when one key was overwritten with another type', async () => {
    const other = { ...claim, key: 'invoice:2' };
    for (const each of [claim, other]) await store.tryAcquire(each, PATIENCE_MS);
    await raw.del(OWNER);
    await raw.lpush(OWNER, 'x');
    expect(await store.renew([claim, other], PATIENCE_MS)).toEqual(['lost', 'renewed']);
  });

  it('still renews and releases when the server is out of memory, and says so when it cannot acquire (C102)', async () => {
    await store.tryAcquire(claim, PATIENCE_MS);
    await raw.config('SET', 'maxmemory', '1');
    try {
      await expect(store.tryAcquire({ ...claim, key: 'b' }, PATIENCE_MS)).rejects.toThrow(/OOM/);
      expect(await store.renew([claim], PATIENCE_MS)).toEqual(['renewed']);
      expect(await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS)).toBe('released');
    } finally {
      await raw.config('SET', 'maxmemory', '0');
    }
  });

  it('calls a demoted server unavailable, and goes on when it is master again (C009)', async () => {
    const readOnly = redisStore({ url: server.url });
    await readOnly.tryAcquire(claim, PATIENCE_MS);
    await raw.replicaof('127.0.0.1', await freePort());
    try {
      const service = new LockService({ stores: { default: bare(readOnly) } });
      await expect(service.acquire('k', { waitMs: 200 })).rejects.toMatchObject({
        code: 'STORE_UNAVAILABLE',
      });
      await service.close(0);
      const atBoot = redisStore({ url: server.url });
      await expect(atBoot.open?.()).rejects.toThrow(/its role is "slave"; connect to the master/);
      await atBoot.close();
    } finally {
      await raw.replicaof('NO', 'ONE');
    }
    const service = new LockService({ stores: { default: readOnly } });
    const lease = await service.acquire('k', { waitMs: 5_000 });
    await lease.release();
    await service.close(0);
  });

  describe('at boot', () => {
    it.each([
      ['allkeys-lru', '0', {}],
      ['allkeys-random', '0', {}],
      ['volatile-lru', '100mb', {}],
    ])('refuses the eviction policy %s with maxmemory %s (C102)', async (policy, maxmemory) => {
      await raw.config('SET', 'maxmemory-policy', policy);
      await raw.config('SET', 'maxmemory', maxmemory);
      try {
        const refusal = expect.objectContaining({
          code: 'LOCK_CONFIG_INVALID',
          message: expect.stringContaining(policy),
        });
        await expect(store.open?.()).rejects.toEqual(refusal);
        const accepting = redisStore({ url: server.url, allowEviction: true });
        await accepting.open?.();
        await accepting.close();
      } finally {
        await raw.config('SET', 'maxmemory-policy', 'noeviction');
        await raw.config('SET', 'maxmemory', '0');
      }
    });

    it('accepts a server without a memory limit, and one that does not tell about itself', async () => {
      await store.open?.();
      const warn = jest.spyOn(console, 'warn').mockReturnValue(); // ioredis tells that it cannot look either
      await raw.call('ACL', 'SETUSER', 'app', 'on', '>secret', '~*', '+@all', '-info', '-config');
      const { host, port } = server;
      const managed = redisStore({ url: `redis://app:secret@${host}:${port}` });
      await managed.open?.();
      expect(await managed.tryAcquire(claim, PATIENCE_MS)).toMatchObject({ kind: 'granted' });
      await managed.close();
      warn.mockRestore();
    });

    it('says where nothing answers, without the password', async () => {
      const port = await freePort();
      const nowhere = redisStore({ url: `redis://user:secret@127.0.0.1:${port}/2?password=secret` });
      const error: unknown = await nowhere.open?.().catch((refusal: unknown) => refusal);
      expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE' });
      expect(String(error)).toContain(`redis://127.0.0.1:${port}/2`);
      expect(JSON.stringify(error) + String(error)).not.toContain('secret');
      await nowhere.close();
    });
  });

  it('takes an ioredis client as it is, and leaves it open', async () => {
    const client: RedisClient & { ping(): Promise<string> } = raw;
    const borrowing = redisStore({ client });
    expect(await borrowing.tryAcquire(claim, PATIENCE_MS)).toMatchObject({ kind: 'granted' });
    await borrowing.close();
    expect(await client.ping()).toBe('PONG');
  });

  it('closes its own connection, before and after it was used, and answers no more', async () => {
    const countBefore = await connections();
    const unused = redisStore({ url: server.url });
    await unused.close();
    const used = redisStore({ url: server.url });
    await used.tryAcquire(claim, PATIENCE_MS);
    await used.close();
    await used.close();
    await expect(used.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/not connected/);
    expect(await connections()).toBe(countBefore);
  });

  async function connections(): Promise<number> {
    const list = (await raw.client('LIST')) as string;
    return list.trim().split('\n').length;
  }

  /** What the server was sent during `work` by others than scripts and this test. */
  async function commandsDuring(work: () => Promise<void>): Promise<string[]> {
    const monitor = await raw.monitor();
    const sent: string[] = [];
    const ended = new Promise<void>((resolve) => {
      monitor.on('monitor', (_time: string, [command = '']: string[], source: string) => {
        if (command === 'echo') resolve();
        else if (source !== 'lua') sent.push(command);
      });
    });
    await work();
    await raw.echo('end');
    await ended;
    monitor.disconnect();
    await once(monitor, 'end');
    return sent;
  }
});

/** The store without its end: a service that is thrown away must not close it. */
function bare(store: LockStore): LockStore {
  const { kind, minTtlMs, keepsReleasedKeys } = store;
  return {
    kind,
    minTtlMs,
    keepsReleasedKeys,
    tryAcquire: (wanted, timeoutMs) => store.tryAcquire(wanted, timeoutMs),
    renew: (claims, timeoutMs) => store.renew(claims, timeoutMs),
    release: (request, timeoutMs) => store.release(request, timeoutMs),
    close: () => Promise.resolve(),
  };
}
