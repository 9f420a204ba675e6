import { setTimeout as pause } from 'node:timers/promises';

import { LockService } from 'nestjs-distributed-lock';
import { consulStore } from 'nestjs-distributed-lock/consul';

import { describeWithServers, startConsul, type ConsulServer } from '../servers/index.js';
import { expectSoon } from './expect-soon.js';
import { expectLossLearned, startHolder, type Holder } from './holder.js';
import { succeed } from './succession.js';

const TTL_MS = 1_500;
/** Consul keeps a session for twice its ttl, and then looks when it comes to it. */
const KEPT_MS = 2 * TTL_MS;
const LOCK_DELAY_MS = 2_000;

describeWithServers(['consul'], 'a process that holds a lock on Consul', () => {
  let server: ConsulServer;
  let successor: LockService;
  const holders: Holder[] = [];

  beforeAll(async () => {
    server = await startConsul();
    successor = new LockService({ stores: { default: consulStore({ url: server.url }) } });
    await successor.open();
  });
  afterEach(() => holders.splice(0).forEach((holder) => holder.kill()));
  afterAll(async () => {
    await successor.close(0);
    await server.stop();
  });

  it('is succeeded within two ttls and a second when it is killed, and not before one is over (C126)', async () => {
    const holder = await stopped('killed');
    const killedAtMs = performance.now();
    holder.kill();
    const next = await succeed(successor, 'killed', KEPT_MS);
    expect(performance.now() - killedAtMs).toBeGreaterThan(TTL_MS / 2);
    await next.release();
  });

  it('is succeeded after its lock-delay on top of that, if it has one', async () => {
    const holder = await stopped('delayed', `?lockDelayMs=${LOCK_DELAY_MS}`);
    holder.kill();
    const waiting = successor.acquire('delayed', { waitMs: 60_000 });
    const taken = waiting.then(() => performance.now());
    let heldAtMs = 0;
    for (let held = true; held; await pause(10)) {
      const askedAtMs = performance.now();
      held = (await server.ask('GET', 'kv/lock/delayed')) !== undefined;
      if (held) heldAtMs = askedAtMs;
    }
    await expectSoon(waiting, LOCK_DELAY_MS + 1_000, successor);
    expect((await taken) - heldAtMs).toBeGreaterThanOrEqual(LOCK_DELAY_MS - 50);
  });

  it('learns of its loss at the first read when it was stopped beyond its ttl, before it calls anybody (C003)', async () => {
    const holder = await stopped('stopped');
    const next = await successor.acquire('stopped', { waitMs: 60_000 });
    await expectLossLearned(holder, next);
  });

  async function stopped(key: string, options = ''): Promise<Holder> {
    const holder = startHolder({ place: `consul:${server.url}${options}`, key, ttlMs: TTL_MS });
    holders.push(holder);
    await holder.stopped();
    return holder;
  }
});
