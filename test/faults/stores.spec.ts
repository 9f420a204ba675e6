import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';

import { Redis } from 'ioredis';
import { hasCode, LockService, type LockEvent } from 'nestjs-distributed-lock';
import { redisStore } from 'nestjs-distributed-lock/redis';

import { itRunsBeside } from '../conformance/beside.js';
import { until } from '../servers/eventually.js';
import {
  describeWithServers,
  startProxy,
  startRedis,
  type TcpProxy,
  type TestServer,
} from '../servers/index.js';
import { expectTaken } from './expect-taken.js';
import { Lateness } from './lateness.js';
import { storeKinds } from './store-kinds.js';

const TTL_MS = 3_000;
/** Longer than a test may take. */
const LONG_TTL_MS = 120_000;

/** What one test has of its own, so that it can run beside the others. */
interface Bench {
  readonly proxy: TcpProxy;
  /** Behind the proxy. */
  readonly service: LockService;
  readonly events: LockEvent[];
  /** Another process, with a way of its own. */
  readonly other: LockService;
  readonly key: string;
  readonly lateness: Lateness;
}

type Test = readonly [name: string, run: (bench: Bench) => Promise<void>];

const tests: readonly Test[] = [
  ...['before it ever connected', 'after it had connected'].map((when): Test => [
    `answers STORE_UNAVAILABLE when the time is over if everything is swallowed ${when} (C044)`,
    async ({ proxy, service, key, lateness }) => {
      if (when === 'after it had connected') await service.open();
      proxy.freeze();
      const sentAtMs = performance.now();
      const refusal = await service.acquire(key, { waitMs: 500 }).catch((error: unknown) => error);
      expect(refusal).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
      expectBetween(performance.now() - sentAtMs, 400, 1_000 + lateness.totalMs);
      await proxy.heal();
      proxy.thaw();
      await (await service.acquire(key, { waitMs: 30_000 })).release();
    },
  ]),
  [
    'goes on by itself when the network comes back, after nothing came through for two seconds',
    async ({ proxy, service, key }) => {
      await service.open();
      proxy.freeze();
      const waiting = Array.from({ length: 10 }, (_, i) => service.acquire(`${key}${i}`, { waitMs: 30_000 }));
      await pause(2_000);
      proxy.thaw();
      for (const lease of await Promise.all(waiting)) await lease.release();
    },
  ],
  [
    'ends a release that nobody answers within a third of the ttl (C044)',
    async ({ proxy, service, key, lateness }) => {
      const lease = await service.acquire(key, { ttlMs: TTL_MS });
      proxy.freeze();
      const sentAtMs = performance.now();
      const refusal = await lease.release().catch((error: unknown) => error);
      expect(refusal).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'committed' });
      expectBetween(performance.now() - sentAtMs, TTL_MS / 3 - 50, TTL_MS / 3 + 500 + lateness.totalMs);
    },
  ],
  [
    'takes a lock although the answer to the first try was lost, and leaves no grant behind',
    async ({ proxy, service, other, events, key }) => {
      await service.open();
      proxy.dropReplies(1);
      const lease = await service.acquire(key, { ttlMs: LONG_TTL_MS, waitMs: 60_000 });
      expect(typesOf(events)).toContain('acquire-unanswered');
      await expectTaken(other, key);
      expect(await lease.release()).toBe('released');
      await (await other.acquire(key, { waitMs: 60_000 })).release(); // what was left behind would last for longer
    },
  ],
  [
    'keeps a lease although the answer to a renewal was lost',
    async ({ proxy, service, other, events, key }) => {
      const lease = await service.acquire(key, { ttlMs: 3 * TTL_MS });
      proxy.dropReplies(1);
      await until('the answer is lost', () => !proxy.dropsReplies);
      // By another try it is confirmed, of the store or of the service.
      const lostAfter = events.length;
      await until('it is renewed', () => typesOf(events.slice(lostAfter)).includes('renewed'));
      lease.assertHeld();
      await expectTaken(other, key);
      expect(await lease.release()).toBe('released');
    },
  ],
  [
    'has freed the key although the answer to the release was lost',
    async ({ proxy, service, other, key }) => {
      const lease = await service.acquire(key, { ttlMs: 4 * TTL_MS });
      proxy.dropReplies(1);
      const answer = await lease.release().catch((error: unknown) => error);
      expect(proxy.dropsReplies).toBe(false);
      // After a third of the ttl, unless the store has asked again by then.
      expect(answer === 'released' || hasCode(answer, 'STORE_UNAVAILABLE')).toBe(true);
      const next = await other.acquire(key, { ttlMs: LONG_TTL_MS, waitMs: 2 * TTL_MS });
      await pause(500); // the release is sent again meanwhile, and must not free the successor
      next.assertHeld();
      await expectTaken(service, key);
      expect(await next.release()).toBe('released');
    },
  ],
  [
    'tells the holder of a lease in time that nothing is known of it any more, and lets the next one in',
    async ({ proxy, service, other, key, lateness }) => {
      const work = service.withLock(key, { ttlMs: TTL_MS, waitMs: 30_000 }, async (lease) => {
        proxy.freeze();
        const endsAtMs = performance.now() + lease.remainingMs;
        await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
        expectBetween(performance.now() - endsAtMs, -20, 250 + lateness.totalMs);
      });
      await expect(work).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
      await (await other.acquire(key, { waitMs: 30_000 })).release();
    },
  ],
];

describe.each(storeKinds)('the network between a process and its $kind', ({ kind, start, storeAt }) => {
  describeWithServers([kind], 'may fail', () => {
    let server: TestServer;

    beforeAll(async () => void (server = await start()));
    afterAll(() => server.stop());

    async function onBench(run: Test[1]): Promise<void> {
      const proxy = await startProxy(server.port);
      const service = new LockService({ stores: { default: storeAt(proxy.port) } });
      const other = new LockService({ stores: { default: storeAt(server.port) } });
      const events: LockEvent[] = [];
      service.events.subscribe((event) => events.push(event));
      await other.open();
      const lateness = new Lateness();
      try {
        await run({ proxy, service, other, events, key: randomUUID(), lateness });
      } finally {
        lateness.end();
        await proxy.heal();
        await Promise.all([service.close(0), other.close(0)]);
        await proxy.stop();
      }
    }

    const cases = tests.map(([name, run]) => ({ name, run: () => onBench(run) }));
    itRunsBeside(cases, { limitMs: 120_000, together: tests.length });
  });
});

describeWithServers(['redis'], "an application's own ioredis client with its default options", () => {
  it('does not make an acquire wait for ever when its server is gone (C044)', async () => {
    const server = await startRedis();
    const proxy = await startProxy(server.port);
    const client = new Redis(proxy.port, '127.0.0.1');
    client.on('error', () => undefined);
    const service = new LockService({ stores: { default: redisStore({ client }) } });
    await service.open();
    proxy.freeze();
    const lateness = new Lateness();
    const sentAtMs = performance.now();
    try {
      await expect(service.acquire('k', { waitMs: 500 })).rejects.toMatchObject({
        code: 'STORE_UNAVAILABLE',
      });
      expectBetween(performance.now() - sentAtMs, 400, 1_000 + lateness.totalMs);
    } finally {
      lateness.end();
      await proxy.heal();
      await service.close(0);
      client.disconnect();
      await proxy.stop();
      await server.stop();
    }
  });
});

function typesOf(events: readonly LockEvent[]): string[] {
  return events.map(({ type }) => type);
}

function expectBetween(value: number, least: number, most: number): void {
  expect(value).toBeGreaterThanOrEqual(least);
  expect(value).toBeLessThanOrEqual(most);
}
