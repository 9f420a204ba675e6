import type { LockService } from 'nestjs-distributed-lock';
import { zookeeperStore } from 'nestjs-distributed-lock/zookeeper';
import { setTimeout as pause } from 'node:timers/promises';

import { expectTaken } from '../faults/expect-taken.js';
import { eventually } from '../servers/eventually.js';
import {
  describeWithServers,
  startZooKeeper,
  startZooKeeperEnsemble,
  zookeeperWord,
  type TestServer,
} from '../servers/index.js';
import { Opened } from './opened.js';
import { expectFreezeSurvived, loseData } from './server-trouble.js';

const PATIENCE_MS = 30_000;
/** Longer than a test may take. */
const LONG_TTL_MS = 100_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: LONG_TTL_MS };

describeWithServers(['zookeeper'], 'ZooKeeper in trouble', () => {
  const opened = new Opened();

  it('keeps leases, and tokens rise, when the leader of three members stops and another is elected', async () => {
    const members = await startZooKeeperEnsemble(3);
    for (const member of members) opened.server(member);
    const one = serviceAt(members);
    const other = serviceAt([...members].reverse());
    const tokens = [await tokenOf(one, 'invoice:1')];
    const held = await one.acquire('held', { ttlMs: LONG_TTL_MS, waitMs: 60_000 });

    const leader = await leaderOf(members);
    leader.pause();
    tokens.push(await tokenOf(other, 'invoice:1'), await tokenOf(one, 'invoice:1'));
    await expectTaken(other, 'held');
    await eventually(() => held.extend(LONG_TTL_MS)); // by the members that are there now
    held.assertHeld();
    leader.resume();
    tokens.push(await tokenOf(other, 'invoice:1'));
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    expect(await held.release()).toBe('released');
  });

  it('tells the holder in time when it is frozen for two ttls, and serves the next owner when it goes on', async () => {
    const server = await started();
    await expectFreezeSurvived(server, [serviceAt([server]), serviceAt([server])], {
      ttlMs: 2_000,
      waitMs: 60_000,
    });
  });

  it('keeps a lease over a restart that is shorter than it', async () => {
    const server = await started();
    const service = serviceAt([server]);
    const held = await service.acquire('k', { ttlMs: LONG_TTL_MS });
    await server.kill();
    await pause(500);
    await server.start();
    await eventually(() => held.extend(LONG_TTL_MS));
    held.assertHeld();
    await expectTaken(serviceAt([server]), 'k');
    expect(await held.release()).toBe('released');
  });

  it('refuses to let tokens fall when it has lost its data, and says what to set; with that they rise again', async () => {
    const server = await started();
    const hosts = `127.0.0.1:${server.port}`;
    const store = opened.store(zookeeperStore({ hosts }));
    let lastToken = 0;
    for (const ownerId of ['a', 'b', 'c']) {
      const answer = await store.tryAcquire({ ...claim, ownerId }, PATIENCE_MS);
      lastToken = answer.kind === 'granted' ? answer.token : 0;
      await store.release({ ...claim, ownerId, keepForMs: 0 }, PATIENCE_MS);
    }
    await loseData(server);
    const refusal = async (ownerId: string): Promise<string> => {
      const answer = store.tryAcquire({ ...claim, ownerId }, PATIENCE_MS);
      const message = await answer.then(JSON.stringify, (error: Error) => error.message);
      await store.release({ ...claim, ownerId, keepForMs: 0 }, PATIENCE_MS); // as the core does
      return message;
    };
    const refusals = [await refusal('d'), await refusal('e')]; // one of them may find its old connection broken
    expect(refusals.join('; ')).toMatch(`tokens would fall. Set tokenOffset above ${lastToken} `);
    expect(refusals.join('; ')).not.toMatch('granted');
    const raised = opened.store(zookeeperStore({ hosts, tokenOffset: lastToken }));
    const next = await raised.tryAcquire(claim, PATIENCE_MS);
    expect(next.kind === 'granted' && next.token).toBeGreaterThan(lastToken);
  });

  async function started(): Promise<TestServer> {
    return opened.server(await startZooKeeper());
  }

  function serviceAt(servers: readonly TestServer[]): LockService {
    const hosts = servers.map(({ host, port }) => `${host}:${port}`);
    return opened.service(zookeeperStore({ hosts }));
  }
});

async function tokenOf(service: LockService, key: string): Promise<number> {
  const lease = await service.acquire(key, { waitMs: 60_000 });
  await lease.release();
  return lease.token;
}

async function leaderOf(members: readonly TestServer[]): Promise<TestServer> {
  for (const member of members) {
    if (/^Mode: leader/m.test(await zookeeperWord(member.host, member.port, 'srvr'))) return member;
  }
  throw new Error('there is no leader');
}
