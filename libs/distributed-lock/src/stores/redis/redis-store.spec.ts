import { redisKeys, type RedisClient } from '../../redis-server/index.js';
import { redisStore, type RedisStoreOptions } from './index.js';

const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 1_000 };
const request = { key: 'invoice:1', ownerId: 'a', keepForMs: 0 };

/** Nobody listens on port 1. */
const NOWHERE = { host: '127.0.0.1', port: 1 };
const PATIENCE_MS = 20_000;

/** A client whose every script answers `reply`. */
function answering(reply: unknown): RedisClient {
  const answer = (): Promise<unknown> => Promise.resolve(reply);
  return { eval: answer, evalsha: answer, info: () => Promise.resolve('') };
}

describe('redisStore', () => {
  it.each([0, '0', 1, '1', 1n, null, undefined, 'OK', true, Buffer.from('renewed'), [0], ['1'], [true], []])(
    'takes nothing but the exact word for success: %p is a loss and no release (C070)',
    async (reply) => {
      const store = redisStore({ client: answering(reply) });
      expect(await store.renew([claim], 100)).toEqual(['lost']);
      expect(await store.release(request, 100)).toBe('not-owner');
      await expect(store.tryAcquire(claim, 100)).rejects.toThrow(/"lock:\{invoice:1\}:owner" is not usable/);
    },
  );

  it.each([
    ['granted'],
    ['granted', '0'],
    ['granted', '1.5'],
    ['granted', '9007199254740993'],
    ['granted', 'x'],
  ])('does not take %j for a grant (C114)', async (...reply) => {
    await expect(redisStore({ client: answering(reply) }).tryAcquire(claim, 100)).rejects.toThrow(
      /not usable/,
    );
  });

  it('reads grants, busy answers and a remaining time that is not known', async () => {
    const ask = (reply: unknown): Promise<unknown> =>
      redisStore({ client: answering(reply) }).tryAcquire(claim, 100);
    expect(await ask(['granted', '1700000000000001'])).toEqual({
      kind: 'granted',
      token: 1_700_000_000_000_001,
    });
    expect(await ask(['busy', '250'])).toEqual({ kind: 'busy', retryAfterMs: 250 });
    expect(await ask(['busy', '-2'])).toEqual({ kind: 'busy', retryAfterMs: null });
  });

  it('sends the text of a script when the server does not know its digest, and otherwise only the digest', async () => {
    const sent: string[] = [];
    let restarted = false;
    const client: RedisClient = {
      eval: () => Promise.resolve(['granted', String(sent.push('text'))]),
      evalsha: () => {
        sent.push('digest');
        if (!restarted) return Promise.resolve(['granted', '7']);
        restarted = false;
        return Promise.reject(new Error('NOSCRIPT No matching script. Please use EVAL.'));
      },
      info: () => Promise.resolve(''),
    };
    const store = redisStore({ client });
    for (restarted of [false, false, true, false]) await store.tryAcquire(claim, 100);
    expect(sent).toEqual(['text', 'digest', 'digest', 'text', 'digest']);
  });

  it('leaves other errors of the server as they are: they mean unknown, never busy (C102)', async () => {
    for (const message of [
      'OOM command not allowed',
      'MISCONF errors writing',
      'READONLY You can not write',
    ]) {
      const fails = (): Promise<never> => Promise.reject(new Error(message));
      const store = redisStore({ client: { eval: fails, evalsha: fails, info: fails } });
      await expect(store.tryAcquire(claim, 100)).rejects.toThrow(message);
      await expect(store.renew([claim], 100)).rejects.toThrow(message);
      await expect(store.release(request, 100)).rejects.toThrow(message);
    }
  });

  it('names the key that holds a value of another type', async () => {
    const fails = (): Promise<never> => Promise.reject(new Error('WRONGTYPE Operation against a key'));
    const store = redisStore({ client: { eval: fails, evalsha: fails, info: fails }, keyPrefix: 'app:' });
    await expect(store.tryAcquire(claim, 100)).rejects.toThrow(
      /Redis key "app:\{invoice:1\}:owner" is not usable/,
    );
  });

  it('refuses no place and two, one without a meaning, replicas that cannot be asked, and braces in the prefix', () => {
    const client = answering(null);
    const refused = [
      {},
      { url: 'redis://127.0.0.1:1', client },
      { url: 'http://127.0.0.1' },
      { url: '127.0.0.1:6379' },
      { client, cluster: [{ host: 'a', port: 6379 }] },
      { cluster: [] },
      { cluster: [{ host: 'a' }] },
      { sentinels: [], name: 'billing' },
      { sentinels: [{ host: 'a', port: 26379 }] },
      { client, minReplicas: 1 },
      { url: 'redis://127.0.0.1:1', minReplicas: 0.5 },
      { client, keyPrefix: '{app}:' },
    ];
    for (const options of refused) {
      expect(() => redisStore(options as RedisStoreOptions)).toThrow(
        expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }),
      );
    }
  });

  it.each([
    [
      'sentinels',
      { sentinels: [NOWHERE, { ...NOWHERE, port: 2 }], name: 'mymaster' },
      /All sentinels are unreachable/,
    ],
    ['a server', { url: `redis://${NOWHERE.host}:${NOWHERE.port}` }, /ECONNREFUSED/],
    ['a cluster', { cluster: [NOWHERE] }, /Failed to refresh slots cache/],
  ] as const)(
    'says why %s cannot be reached, and does not wait for its time to be over',
    async (_, place, why) => {
      const store = redisStore(place);
      const askedAtMs = performance.now();
      const refusal = await store.tryAcquire(claim, PATIENCE_MS).catch((error: unknown) => error);
      expect((refusal as { cause?: unknown }).cause).toMatchObject({ message: expect.stringMatching(why) });
      expect(performance.now() - askedAtMs).toBeLessThan(PATIENCE_MS / 2);
      await store.close();
    },
  );
});

describe('redisKeys', () => {
  it('puts both keys of a lock into one slot, whatever braces its own key has (C064)', () => {
    for (const key of ['a', '{a}', '}', '{}', 'x{y}z', '{', '%7B', 'счёт 1']) {
      const { owner, fence } = redisKeys('lock:', key);
      const [tag] = /\{(.*?)\}/.exec(owner) ?? [];
      expect(tag).toBeDefined();
      expect(fence).toContain(tag);
      expect(owner.indexOf('{')).toBe('lock:'.length);
      expect(owner.slice(owner.indexOf('}'))).toBe('}:owner');
    }
  });

  it('keeps different keys different', () => {
    const keys = ['a}', 'a%7D', 'a%257D', 'a', 'a}:owner', '{a', '%7Ba', 'A'];
    expect(new Set(keys.map((key) => redisKeys('', key).owner)).size).toBe(keys.length);
  });
});
