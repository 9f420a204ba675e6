import { LockService } from 'nestjs-distributed-lock';
import { zookeeperStore } from 'nestjs-distributed-lock/zookeeper';
import { rmSync } from 'node:fs';
import { join } from 'node:path';

import {
  describeWithServers,
  startZooKeeper,
  startZooKeeperEnsemble,
  zookeeperWord,
  type TestServer,
} from '../servers/index.js';

const PATIENCE_MS = 5_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 60_000 };

describeWithServers(['zookeeper'], 'ZooKeeper in trouble', () => {
  /** Ended after each test, also when it failed. */
  const ends: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });

  it('keeps leases, and tokens rise, when the leader of three members stops and another is elected', async () => {
    const members = await startZooKeeperEnsemble(3);
    for (const member of members) ends.push(() => member.stop());
    const one = serviceAt(members);
    const other = serviceAt([...members].reverse());
    const tokens = [await tokenOf(one, 'invoice:1')];
    const held = await one.acquire('held', { ttlMs: 15_000 });

    const leader = await leaderOf(members);
    leader.pause();
    tokens.push(await tokenOf(other, 'invoice:1'), await tokenOf(one, 'invoice:1'));
    expect(await other.tryAcquire('held')).toBeNull();
    await pause(6_000); // beyond a renewal
    held.assertHeld();
    leader.resume();
    tokens.push(await tokenOf(other, 'invoice:1'));
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    expect(await held.release()).toBe('released');
  });

  it('tells the holder in time when it is frozen for two ttls, and serves the next owner when it goes on', async () => {
    const server = await started();
    const [one, other] = [serviceAt([server]), serviceAt([server])];
    const held = await one.acquire('k', { ttlMs: 2_000 });
    server.pause();
    const endsAtMs = performance.now() + held.remainingMs;
    await new Promise((resolve) => held.signal.addEventListener('abort', resolve));
    expect(performance.now()).toBeLessThan(endsAtMs + 250);
    expect(() => held.assertHeld()).toThrow(
      expect.objectContaining({ code: 'LEASE_LOST', reason: 'expired' }),
    );
    await pause(2_000);
    server.resume();
    const next = await other.acquire('k', { ttlMs: 2_000, waitMs: 10_000 });
    expect(next.token).toBeGreaterThan(held.token);
    await next.release();
    await (await one.acquire('k', { waitMs: 10_000 })).release();
  });

  it('keeps a lease over a restart that is shorter than it', async () => {
    const server = await started();
    const service = serviceAt([server]);
    const held = await service.acquire('k', { ttlMs: 6_000 });
    await server.kill();
    await pause(500);
    await server.start();
    await pause(3_000);
    held.assertHeld();
    expect(await serviceAt([server]).tryAcquire('k')).toBeNull();
    expect(await held.release()).toBe('released');
  });

  it('refuses to let tokens fall when it has lost its data, and says what to set; with that they rise again', async () => {
    const server = await started();
    const hosts = `127.0.0.1:${server.port}`;
    const store = zookeeperStore({ hosts });
    ends.push(() => store.close());
    let lastToken = 0;
    for (const ownerId of ['a', 'b', 'c']) {
      const answer = await store.tryAcquire({ ...claim, ownerId }, PATIENCE_MS);
      lastToken = answer.kind === 'granted' ? answer.token : 0;
      await store.release({ ...claim, ownerId, keepForMs: 0 }, PATIENCE_MS);
    }
    await server.kill();
    rmSync(join(server.folder, 'data'), { recursive: true });
    await server.start();
    const refusal = async (ownerId: string): Promise<string> => {
      const answer = store.tryAcquire({ ...claim, ownerId }, PATIENCE_MS);
      const message = await answer.then(JSON.stringify, (error: Error) => error.message);
      await store.release({ ...claim, ownerId, keepForMs: 0 }, PATIENCE_MS); // as the core does
      return message;
    };
    const refusals = [await refusal('d'), await refusal('e')]; // one of them may find its old connection broken
    expect(refusals.join('; ')).toMatch(`tokens would fall. Set tokenOffset above ${lastToken} `);
    expect(refusals.join('; ')).not.toMatch('granted');
    const raised = zookeeperStore({ hosts, tokenOffset: lastToken });
    ends.push(() => raised.close());
    const next = await raised.tryAcquire(claim, PATIENCE_MS);
    expect(next.kind === 'granted' && next.token).toBeGreaterThan(lastToken);
  });

  async function started(): Promise<TestServer> {
    const server = await startZooKeeper();
    ends.push(() => server.stop());
    return server;
  }

  function serviceAt(servers: readonly TestServer[]): LockService {
    const hosts = servers.map(({ host, port }) => `${host}:${port}`);
    const service = new LockService({ stores: { default: zookeeperStore({ hosts }) } });
    ends.push(() => service.close(0));
    return service;
  }
});

async function tokenOf(service: LockService, key: string): Promise<number> {
  const lease = await service.acquire(key, { waitMs: 30_000 });
  await lease.release();
  return lease.token;
}

async function leaderOf(members: readonly TestServer[]): Promise<TestServer> {
  for (const member of members) {
    if (/^Mode: leader/m.test(await zookeeperWord(member.host, member.port, 'srvr'))) return member;
  }
  throw new Error('there is no leader');
}

function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, durationMs));
}
