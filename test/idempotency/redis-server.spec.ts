import { once } from 'node:events';

import { Redis } from 'ioredis';
import { IdempotencyService, type IdempotencyStore } from 'nestjs-distributed-lock';
import { redisIdempotencyStore, type RedisClient } from 'nestjs-distributed-lock/redis';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { claimOn, done, freed, LONG_MS, newId, PATIENCE_MS, settle, take } from './record-steps.js';

describeWithServers(['redis'], 'the idempotency store on its Redis server', () => {
  let server: RedisServer;
  let raw: Redis;
  let store: IdempotencyStore;

  beforeAll(async () => {
    server = await startRedis();
    raw = new Redis(server.url);
    store = redisIdempotencyStore({ url: server.url });
  });
  beforeEach(async () => void (await raw.flushall()));
  afterAll(async () => {
    await store.close();
    raw.disconnect();
    await server.stop();
  });

  it('sends two commands for a first call and one for a replay, counted on the wire', async () => {
    const calls = new IdempotencyService({ store });
    await calls.runOnce('warm', {}, () => 1); // from here on the server knows both scripts
    const fingerprint = '1:mine';
    const first = await commandsDuring(() => calls.runOnce('k', { fingerprint }, () => ({ total: 5n })));
    expect(first).toEqual(['evalsha', 'evalsha']);
    const replay = await commandsDuring(() => calls.runOnce('k', { fingerprint }, () => ({ total: 6n })));
    expect(replay).toEqual(['evalsha']);
    const refused = await commandsDuring(() =>
      calls.runOnce('k', { fingerprint: '1:other' }, () => 1).catch(() => undefined),
    );
    expect(refused).toEqual(['evalsha']);
    const failed = await commandsDuring(() =>
      calls.runOnce('k2', {}, () => Promise.reject(new Error('x'))).catch(() => undefined),
    );
    expect(failed).toEqual(['evalsha', 'evalsha']);
  });

  it('sends claims that come together in one command, and answers each of them', async () => {
    const calls = new IdempotencyService({ store });
    await calls.runOnce('k0', {}, () => 'stored');
    const keys = Array.from({ length: 130 }, (_, nr) => `k${nr % 100}`);
    const together = (): Promise<string[]> =>
      Promise.all(keys.map((key) => calls.runOnce(key, { waitMs: 0 }, () => `${key} ran`).catch(codeOf)));
    const expected = keys.map((key, i) => (i === 0 ? 'stored' : `${key} ran`));
    const answers: string[] = [];
    const sent = await commandsDuring(async () => void answers.push(...(await together())));
    expect(answers.slice(0, 100)).toEqual(expected.slice(0, 100));
    expect(answers.slice(100)).toEqual(['stored', ...Array<string>(29).fill('IDEMPOTENCY_IN_PROGRESS')]);
    expect(sent).toHaveLength(5 + 99); // the completions come one by one
    expect(await commandsDuring(together)).toHaveLength(5);
  });

  it('gives an answer to every claim beside one whose key holds something else', async () => {
    const claims = [claimOn(newId()), claimOn(newId()), claimOn(newId())] as const;
    await raw.set(`idempotency:${claims[1].id}`, 'text');
    const answers = await Promise.allSettled(claims.map((claim) => store.claim(claim, PATIENCE_MS)));
    expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    await store.renew(claims[0], PATIENCE_MS).then((answer) => expect(answer).toBe('renewed'));
  });

  it('asks about each key by itself where a command may be about one only, as in a cluster', async () => {
    const asked: number[] = [];
    const ask = (digest: string, keys: number, ...more: string[]): Promise<unknown> => {
      asked.push(keys);
      if (keys === 1) return raw.evalsha(digest, keys, ...more);
      return Promise.reject(new Error("CROSSSLOT Keys in request don't hash to the same slot"));
    };
    const client: RedisClient = {
      evalsha: ask,
      eval: (text, keys, ...more) => raw.eval(text, keys, ...more),
      info: () => raw.info(),
    };
    const calls = new IdempotencyService({ store: redisIdempotencyStore({ client }) });
    await calls.runOnce('warm', {}, () => 1);
    const runs = (): Promise<number[]> =>
      Promise.all(['a', 'b', 'c'].map((key, i) => calls.runOnce(key, {}, () => i)));
    expect(await runs()).toEqual([0, 1, 2]);
    expect(await runs()).toEqual([0, 1, 2]);
    expect(asked.filter((keys) => keys > 1)).toEqual([3]);
  });

  it('never writes a key without an end, and keeps one hash for each record', async () => {
    const [answered, failed, running] = [claimOn(newId()), claimOn(newId()), claimOn(newId())];
    for (const claim of [answered, failed, running]) await take(store, claim);
    await settle(store, answered, done('1', 5_000));
    await settle(store, failed, freed(true));
    const keys = await raw.keys('*');
    expect(keys.sort()).toEqual([answered, failed, running].map(({ id }) => `idempotency:${id}`).sort());
    const endOf = ({ id }: { readonly id: string }): Promise<number> => raw.pttl(`idempotency:${id}`);
    expect(await endOf(answered)).toBeLessThanOrEqual(5_000);
    expect(await endOf(running)).toBeGreaterThan(1.9 * LONG_MS); // the lease and what is kept beyond it
    for (const claim of [answered, failed, running]) expect(await endOf(claim)).toBeGreaterThan(0);
  });

  it('keeps every digit of a fence (C114)', async () => {
    const claim = claimOn(newId());
    await raw.hset(`idempotency:${claim.id}`, { state: 'absent', attempt: '1', fence: '4000000000000000' });
    expect((await take(store, claim)).fence).toBe(4_000_000_000_000_001);
  });

  it('takes no value that it did not write for a record', async () => {
    const claim = claimOn(newId());
    const key = `idempotency:${claim.id}`;
    const refused = async (): Promise<void> =>
      expect(store.claim(claim, PATIENCE_MS)).rejects.toThrow(/is not usable as an idempotency record/);
    await raw.set(key, 'text');
    await refused();
    await raw.del(key);
    await raw.hset(key, { something: 'else' });
    await refused();
  });

  it('works through a client of the application, and goes on when the server has forgotten its scripts', async () => {
    const client: RedisClient = raw;
    const borrowed = redisIdempotencyStore({ client, keyPrefix: 'app:' });
    const calls = new IdempotencyService({ store: borrowed });
    await calls.runOnce('k', {}, () => 'once');
    await raw.script('FLUSH');
    expect(await calls.runOnce('k', {}, () => 'again')).toBe('once');
    await borrowed.close();
    expect(await raw.ping()).toBe('PONG');
    expect(() => redisIdempotencyStore({} as { client: RedisClient })).toThrow(
      /redisIdempotencyStore\(\) needs either/,
    );
  });

  it('refuses at boot a server that may evict records', async () => {
    await raw.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await expect(store.open?.()).rejects.toThrow(/may evict/);
    await raw.config('SET', 'maxmemory-policy', 'noeviction');
    await store.open?.();
  });

  function codeOf(error: { readonly code: string }): string {
    return error.code;
  }

  async function commandsDuring(work: () => Promise<unknown>): Promise<string[]> {
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
