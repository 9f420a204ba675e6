import { setTimeout as pause } from 'node:timers/promises';

import { Redis } from 'ioredis';
import type { LockStore } from 'nestjs-distributed-lock';
import { redlockStore } from 'nestjs-distributed-lock/redis';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';

/** The longest acquisition, which is longer than all leases here. */
const KEPT_OUT_MS = 5_000;
/** As long as an acquisition may take at most: nobody is to give up because the machine is slow. */
const PATIENCE_MS = 5_000;
const NODE = 'redlock:server';
const claim = { key: 'k', ownerId: 'x', ttlMs: 4_000 };

describeWithServers(['redis'], 'a Redlock server that lost its data', () => {
  let servers: RedisServer[];
  let raw: Redis[];
  let store: LockStore;

  beforeAll(async () => {
    servers = await Promise.all(Array.from({ length: 3 }, () => startRedis({ appendOnly: true })));
    raw = servers.map(({ url }) => new Redis(url));
    for (const client of raw) client.on('error', () => undefined);
  });
  beforeEach(async () => {
    await Promise.all(raw.map((client) => client.flushall()));
    store = redlockStore({ urls: servers.map(({ url }) => url) });
    await store.open?.();
  });
  afterEach(() => store.close());
  afterAll(async () => {
    for (const client of raw) client.disconnect();
    await Promise.all(servers.map((server) => server.stop()));
  });

  async function tokenOf(ownerId: string): Promise<number> {
    const answer = await store.tryAcquire({ ...claim, ownerId }, PATIENCE_MS);
    if (answer.kind !== 'granted') throw new Error('it should be free');
    await store.release({ ...claim, ownerId, keepForMs: 0 }, PATIENCE_MS);
    return answer.token;
  }

  const votes = async (server: number): Promise<boolean> =>
    (await raw[server]?.hexists(NODE, 'servers')) === 1;

  async function untilVoting(...wanted: number[]): Promise<void> {
    const startedAtMs = performance.now();
    while (!(await Promise.all(wanted.map(votes))).every(Boolean)) {
      if (performance.now() - startedAtMs > 4 * KEPT_OUT_MS) throw new Error('it is still kept out');
      await pause(50);
    }
  }

  it('is kept out for longer than the longest lease, and then votes above every token', async () => {
    const tokens = [await tokenOf('a')];
    await raw[0]?.flushall();
    const lostAtMs = performance.now();
    tokens.push(await tokenOf('b'));
    expect(await votes(0)).toBe(false);
    await untilVoting(0);
    expect(performance.now() - lostAtMs).toBeGreaterThan(KEPT_OUT_MS);
    expect(Number(await raw[0]?.hget(NODE, 'high'))).toBeGreaterThanOrEqual(tokens[1] as number);
    expect(await raw[0]?.keys('redlock:{*')).toEqual([]); // nothing was written meanwhile
    await servers[1]?.kill(); // from here on it is needed
    tokens.push(await tokenOf('c'));
    await servers[1]?.start();
    expect(tokens).toEqual([...new Set(tokens)].sort((one, next) => one - next));
  });

  it.each([
    { what: 'does not let a second owner in', letIn: false },
    { what: 'lets a second owner in if it votes at once (positive control)', letIn: true },
  ])('$what while the first one has its lease', async ({ letIn }) => {
    await servers[2]?.kill();
    const held = { ...claim, ttlMs: 60_000 }; // it does not end while a server starts, however slow the machine is
    expect(await store.tryAcquire(held, PATIENCE_MS)).toMatchObject({ kind: 'granted' }); // by servers 0 and 1
    await servers[2]?.start();
    await raw[2]?.ping(); // connected again
    await raw[0]?.flushall();
    if (letIn) await raw[0]?.hset(NODE, { servers: 3, high: 0, longestMs: 0 });
    const another = redlockStore({ urls: servers.map(({ url }) => url) });
    await another.open?.();
    const answer = await another.tryAcquire({ ...claim, ownerId: 'y' }, PATIENCE_MS).catch(() => null);
    expect(answer?.kind === 'granted').toBe(letIn);
    await another.close();
  });

  it('finds company in a majority: tokens go on above those that one server remembers, after the same time', async () => {
    const before = await tokenOf('a');
    await Promise.all([raw[0]?.flushall(), raw[1]?.flushall()]);
    const lostAtMs = performance.now();
    await expect(store.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS)).rejects.toThrow(
      /has lost its data/,
    );
    await untilVoting(0, 1);
    expect(performance.now() - lostAtMs).toBeGreaterThan(KEPT_OUT_MS);
    expect(await tokenOf('c')).toBeGreaterThan(before);
  });

  it('finds company in all others: then they begin anew at once, with tokens from their clocks', async () => {
    const before = await tokenOf('a');
    await Promise.all(raw.map((client) => client.flushall()));
    await expect(store.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/has lost its data/);
    const lostAtMs = performance.now();
    await untilVoting(0, 1, 2);
    expect(performance.now() - lostAtMs).toBeLessThan(KEPT_OUT_MS);
    const longest = await Promise.all(raw.map((client) => client.hget(NODE, 'longestMs')));
    expect(longest).toEqual(['0', '0', '0']); // whoever was kept out is let in with how long leases may be
    expect(await tokenOf('b')).toBeGreaterThan(before);
  });
});
