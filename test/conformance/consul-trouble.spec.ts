import type { LockService, LockStore } from 'nestjs-distributed-lock';
import { consulStore, type ConsulStoreOptions } from 'nestjs-distributed-lock/consul';

import { eventually } from '../servers/eventually.js';
import { describeWithServers, startConsul, startConsulCluster, type ConsulServer } from '../servers/index.js';
import { expectTaken } from '../faults/expect-taken.js';
import { claim, PATIENCE_MS } from './consul-place.js';
import { countThroughRestart } from './counting.js';
import { Opened } from './opened.js';
import { SectionHistory } from './section-history.js';
import { expectFreezeSurvived, expectWokenAfterRestart, loseData } from './server-trouble.js';

/** Longer than a test may take. */
const LONG_TTL_MS = 200_000;

describeWithServers(['consul'], 'Consul in trouble', () => {
  const opened = new Opened();

  it('has one owner at a time, and tokens rise, when the leader of three stops and another is elected', async () => {
    const members = await startConsulCluster(3);
    for (const member of members) opened.server(member);
    const leader = await eventually(() => leaderOf(members));
    const others = members.filter((member) => member !== leader);
    const services = others.map(({ url }) => serviceAt({ url }));
    const held = await services[0]?.acquire('held', { ttlMs: LONG_TTL_MS, waitMs: 60_000 });
    const history = new SectionHistory();
    const done = new AbortController();
    const work = services.map((service) => history.fill(service, 'k', done.signal));
    await history.grownBy(10);
    leader.pause();
    await history.grownBy(10);
    leader.resume();
    await history.grownBy(10);
    done.abort();
    await Promise.all(work);
    expect(history.faults()).toEqual([]);
    held?.assertHeld();
    await expectTaken(services[1] as LockService, 'held');
    expect(await held?.release()).toBe('released');
  });

  it('tells the holder in time when it is frozen for two ttls, and serves the next owner when it goes on', async () => {
    const server = await started();
    const both = [serviceAt({ url: server.url }), serviceAt({ url: server.url })] as const;
    await expectFreezeSurvived(server, both, { ttlMs: 1_500, waitMs: 60_000 });
  });

  it('keeps a lease over a restart that is shorter than it, and wakes who waits for it afterwards', async () => {
    const server = await started();
    const held = await serviceAt({ url: server.url }).acquire('k', { ttlMs: LONG_TTL_MS });
    const beside = serviceAt({ url: server.url });
    const listening = consulStore({ url: server.url });
    const waiting = opened.service(listening);
    const release = async (): Promise<void> => {
      await eventually(() => held.extend(LONG_TTL_MS));
      await expectTaken(beside, 'k');
      expect(await held.release()).toBe('released');
    };
    const next = await expectWokenAfterRestart(server, 'k', { listening, waiting, beside, release });
    expect(next.token).toBeGreaterThan(held.token);
  });

  it('loses no increment of four processes when it is killed and comes back with its data, and none of them ends badly', async () => {
    const server = await started();
    await countThroughRestart({ place: `consul:${server.url}` }, { callers: 3, increments: 5 }, server);
  });

  it('refuses to let tokens fall when it has lost its data, and says what to set; with that they rise again', async () => {
    const server = await started();
    const store = storeAt({ url: server.url });
    for (let i = 0; i < 15; i += 1) {
      await store.tryAcquire(claim, PATIENCE_MS);
      await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
    }
    const last = await store.tryAcquire(claim, PATIENCE_MS);
    const lastToken = last.kind === 'granted' ? last.token : 0;
    await loseData(server);
    const again = { ...claim, ownerId: 'b' };
    await expect(store.tryAcquire(again, PATIENCE_MS)).rejects.toThrow(
      new RegExp(`tokens would fall. Set tokenOffset above ${lastToken} `),
    );
    expect(await store.renew([claim], PATIENCE_MS)).toEqual(['lost']);
    await store.release({ ...again, keepForMs: 0 }, PATIENCE_MS); // as the core does after an acquire that failed
    const raised = storeAt({ url: server.url, tokenOffset: lastToken });
    const next = await raised.tryAcquire(claim, PATIENCE_MS);
    expect(next.kind === 'granted' && next.token).toBeGreaterThan(lastToken);
  });

  async function started(): Promise<ConsulServer> {
    return opened.server(await startConsul());
  }

  const storeAt = (options: ConsulStoreOptions): LockStore => opened.store(consulStore(options));
  const serviceAt = (options: ConsulStoreOptions): LockService => opened.service(consulStore(options));
});

async function leaderOf(members: readonly ConsulServer[]): Promise<ConsulServer> {
  for (const member of members) {
    const self = (await member.ask('GET', 'agent/self')) as { Stats: { consul: { leader: string } } };
    if (self.Stats.consul.leader === 'true') return member;
  }
  throw new Error('there is no leader');
}
