import { randomBytes } from 'node:crypto';

import { Redis } from 'ioredis';
import { redlockStore } from 'nestjs-distributed-lock/redis';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { Adversary } from './adversary.js';
import { DirectedNetwork } from './directed-network.js';
import { stopClocks, whileTimePasses } from './rounds.js';
import { nameOf, NOT_BEYOND, replaced, type Rewrite } from './script-texts.js';

const PATIENCE_MS = 4_000;
const x = { key: 'k', ownerId: 'x', ttlMs: 60_000 };
const y = { key: 'k', ownerId: 'y', ttlMs: 60_000 };
const unchanged: Rewrite = (text) => text;

describeWithServers(['redis'], 'rare orders of the commands of Redlock', () => {
  let servers: RedisServer[];
  let raw: Redis[];
  let keyPrefix: string;

  beforeAll(async () => {
    servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
    raw = servers.map(({ url }) => new Redis(url));
    await Promise.all(raw.map((client) => client.ping()));
  });
  beforeEach(() => (keyPrefix = `${randomBytes(6).toString('hex')}:`));
  beforeEach(stopClocks); // nobody's patience ends because the machine is slow
  afterEach(() => void jest.useRealTimers());
  afterAll(async () => {
    for (const client of raw) client.disconnect();
    await Promise.all(servers.map((server) => server.stop()));
  });

  /** Founds the set of servers, and lets their fences begin where the test says. */
  async function begin(fences: readonly number[]): Promise<void> {
    const founder = redlockStore({ clients: raw, keyPrefix });
    await founder.open?.();
    for (const [i, client] of raw.entries()) await client.set(`${keyPrefix}{k}:fence`, fences[i] ?? 0);
  }

  async function vanish(server: number): Promise<void> {
    await raw[server]?.del(`${keyPrefix}{k}:owner`);
  }

  async function wipe(server: number): Promise<void> {
    await raw[server]?.del(`${keyPrefix}server`, `${keyPrefix}{k}:owner`, `${keyPrefix}{k}:fence`);
  }

  /** With the fence that the others have, and before the acquisitions of before have ended. */
  async function letInAtOnce(server: number): Promise<void> {
    await raw[server]?.hset(`${keyPrefix}server`, { servers: 3, high: 100, longestMs: 0 });
    await raw[server]?.set(`${keyPrefix}{k}:fence`, 100);
  }

  const withoutLimit: Rewrite = (text) =>
    nameOf(text) === 'raise' ? replaced(text, NOT_BEYOND, `if not fence then return {'refused'} end`) : text;

  it.each([
    { what: 'is refused', rewrite: unchanged, duplicate: false },
    {
      what: 'repeats a token if only the owner is looked at (positive control)',
      rewrite: withoutLimit,
      duplicate: true,
    },
  ])(
    'a raise that meets a second grant of its own owner, because the first command came again, $what',
    async ({ rewrite, duplicate }) => {
      await begin([100, 104, 104]);
      const adversary = new Adversary(raw, keyPrefix, rewrite);
      const network = new DirectedNetwork(adversary);
      const first = adversary
        .connect()
        .tryAcquire(x, PATIENCE_MS)
        .catch(() => null);
      const sentAgain = await network.deliver({ script: 'grant', server: 0, owner: 'x' }); // its fence is 101
      await network.lose({ script: 'grant', server: 2, owner: 'x' });
      await network.deliver({ script: 'grant', server: 1, owner: 'x' }); // 105: x raises server 0, and that is late
      await vanish(0);
      const second = adversary
        .connect()
        .tryAcquire(y, PATIENCE_MS)
        .catch(() => null);
      await network.deliver({ script: 'grant', server: 0, owner: 'y' }); // 102
      await network.deliver({ script: 'grant', server: 2, owner: 'y' }); // 105
      await network.deliver({ script: 'raise', server: 0, owner: 'y' });
      expect(await second).toEqual({ kind: 'granted', token: 105 });
      await vanish(0);
      await sentAgain.execute(); // 106
      await network.deliver({ script: 'raise', server: 0, owner: 'x' });
      expect(await first).toEqual(duplicate ? { kind: 'granted', token: 105 } : null);
      await whileTimePasses(adversary.end(), 1);
    },
  );

  it.each([
    { what: 'does not vote, so that no token is repeated', letIn: false },
    { what: 'repeats a token if it is let in at once (positive control)', letIn: true },
  ])('a server that lost its data while an acquisition still counts on it $what', async ({ letIn }) => {
    await begin([100, 100, 100]);
    const adversary = new Adversary(raw, keyPrefix);
    const network = new DirectedNetwork(adversary);
    const first = adversary
      .connect()
      .tryAcquire(x, PATIENCE_MS)
      .catch(() => null);
    await network.deliver({ script: 'grant', server: 0, owner: 'x' }); // 101
    await network.lose({ script: 'grant', server: 2, owner: 'x' });
    await wipe(0);
    if (letIn) await letInAtOnce(0);
    const second = adversary
      .connect()
      .tryAcquire(y, PATIENCE_MS)
      .catch(() => null);
    await network.deliver({ script: 'grant', server: 0, owner: 'y' });
    await network.deliver({ script: 'grant', server: 2, owner: 'y' });
    if (!letIn) await network.lose({ script: 'grant', server: 1, owner: 'y' });
    await network.deliver({ script: 'grant', server: 1, owner: 'x' });
    expect(await first).toEqual({ kind: 'granted', token: 101 });
    expect(await second).toEqual(letIn ? { kind: 'granted', token: 101 } : null);
    await whileTimePasses(adversary.end(), 1);
  });

  it('a raise that was carried out and never answered takes no lock, leaves none, and repeats no token', async () => {
    await begin([100, 104, 104]);
    const adversary = new Adversary(raw, keyPrefix);
    const network = new DirectedNetwork(adversary);
    const unanswered = adversary
      .connect()
      .tryAcquire(x, PATIENCE_MS)
      .catch(() => null);
    for (const server of [0, 1]) await network.deliver({ script: 'grant', server, owner: 'x' });
    await network.lose({ script: 'grant', server: 2, owner: 'x' });
    await network.loseAnswer({ script: 'raise', server: 0, owner: 'x' });
    expect(await unanswered).toBeNull();
    expect(await raw[0]?.get(`${keyPrefix}{k}:fence`)).toBe('105');
    for (const server of [0, 1, 2]) await network.deliver({ script: 'release', server, owner: undefined });
    await whileTimePasses(adversary.end(), 1);
    const next = redlockStore({ clients: raw, keyPrefix });
    expect(await next.tryAcquire(y, PATIENCE_MS)).toEqual({ kind: 'granted', token: 106 });
  });
});
