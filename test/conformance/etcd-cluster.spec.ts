import { setTimeout as pause } from 'node:timers/promises';

import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { etcdStore, type EtcdStoreOptions } from 'nestjs-distributed-lock/etcd';

import { expectTaken } from '../faults/expect-taken.js';
import { eventually } from '../servers/eventually.js';
import { describeWithServers, startEtcd, startEtcdCluster, type EtcdServer } from '../servers/index.js';
import { Opened } from './opened.js';
import { expectFreezeSurvived, loseData } from './server-trouble.js';

const PATIENCE_MS = 30_000;
/** Longer than a test may take. */
const LONG_TTL_MS = 200_000;
const claim = { key: 'invoice:1', ownerId: 'a', ttlMs: LONG_TTL_MS };

describeWithServers(['etcd'], 'etcd in trouble', () => {
  const opened = new Opened();

  it('keeps leases, and tokens rise, when the leader of three members stops and another is elected', async () => {
    const members = await startEtcdCluster(3);
    for (const member of members) opened.server(member);
    const hosts = members.map(({ url }) => url);
    const one = serviceAt({ hosts });
    const other = serviceAt({ hosts: [...hosts].reverse() });
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
    const both = [serviceAt({ hosts: server.url }), serviceAt({ hosts: server.url })] as const;
    await expectFreezeSurvived(server, both, { ttlMs: 2_000, waitMs: 60_000 });
  });

  it('keeps a lease over a restart that is shorter than it', async () => {
    const server = await started();
    const service = serviceAt({ hosts: server.url });
    const held = await service.acquire('k', { ttlMs: LONG_TTL_MS });
    await server.kill();
    await pause(500);
    await server.start();
    await eventually(() => held.extend(LONG_TTL_MS));
    held.assertHeld();
    await expectTaken(serviceAt({ hosts: server.url }), 'k');
    expect(await held.release()).toBe('released');
  });

  it('refuses to let tokens fall when it has lost its data, and says what to set; with that they rise again', async () => {
    const server = await started();
    const store = storeAt({ hosts: server.url });
    for (let i = 0; i < 5; i += 1) {
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
    await store.release({ ...again, keepForMs: 0 }, PATIENCE_MS); // as the core does after an acquire that failed
    const raised = storeAt({ hosts: server.url, tokenOffset: lastToken });
    const next = await raised.tryAcquire(claim, PATIENCE_MS);
    expect(next.kind === 'granted' && next.token).toBeGreaterThan(lastToken);
  });

  it('logs in, logs in anew when its token is no longer known, and never shows the password', async () => {
    const server = await started();
    await withUser(server, 'locks', 'secret');
    const stranger = storeAt({ hosts: server.url });
    await expect(stranger.open?.()).rejects.toThrow(/Pass the right auth/);
    const wrong = storeAt({ hosts: server.url, auth: { username: 'locks', password: 'wrong secret' } });
    const refusal: unknown = await wrong.open?.().catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    expect(String(refusal) + JSON.stringify(refusal)).not.toContain('secret');

    const auth = { username: 'locks', password: 'secret' };
    const elsewhere = storeAt({ hosts: server.url, auth, keyPrefix: 'other/' });
    await expect(elsewhere.open?.()).rejects.toThrow(/may not read and write keys that begin with "other\/"/);
    const service = serviceAt({ hosts: server.url, auth });
    await service.open();
    await (await service.acquire('k')).release();
    await server.kill();
    await server.start(); // simple tokens do not outlive it
    await (await service.acquire('k', { waitMs: 60_000 })).release();
  });

  async function started(): Promise<EtcdServer> {
    return opened.server(await startEtcd());
  }

  const storeAt = (options: EtcdStoreOptions): LockStore => opened.store(etcdStore(options));
  const serviceAt = (options: EtcdStoreOptions): LockService => opened.service(etcdStore(options));
});

async function tokenOf(service: LockService, key: string): Promise<number> {
  const lease = await service.acquire(key, { waitMs: 60_000 });
  await lease.release();
  return lease.token;
}

async function leaderOf(members: readonly EtcdServer[]): Promise<EtcdServer> {
  for (const member of members) {
    const { header, leader } = await member.ask('maintenance/status', {});
    if ((header as { member_id: string }).member_id === leader) return member;
  }
  throw new Error('there is no leader');
}

/** A user who may use keys that begin with `lock/`, and a root user, without whom nobody would have to log in. */
async function withUser(server: EtcdServer, name: string, password: string): Promise<void> {
  const perm = { permType: 'READWRITE', key: base64('lock/'), range_end: base64('lock0') };
  await server.ask('auth/user/add', { name: 'root', password: 'root secret' });
  await server.ask('auth/role/add', { name: 'root' });
  await server.ask('auth/user/grant', { user: 'root', role: 'root' });
  await server.ask('auth/user/add', { name, password });
  await server.ask('auth/role/add', { name: 'locker' });
  await server.ask('auth/role/grant', { name: 'locker', perm });
  await server.ask('auth/user/grant', { user: name, role: 'locker' });
  await server.ask('auth/enable', {});
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');
