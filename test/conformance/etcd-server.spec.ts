import { setTimeout as pause } from 'node:timers/promises';

import { LockService, type Claim, type LockStore } from 'nestjs-distributed-lock';
import { etcdStore } from 'nestjs-distributed-lock/etcd';

import { eventually } from '../servers/eventually.js';
import {
  describeWithServers,
  startCommandProxy,
  startEtcd,
  type CommandProxy,
  type EtcdServer,
} from '../servers/index.js';
import { expectSoon } from './expect-soon.js';
import { expectWokenAtEveryRelease } from './expect-woken.js';
import { Opened } from './opened.js';
import { expectWokenAfterRestart } from './server-trouble.js';

const PATIENCE_MS = 30_000;
/** Longer than a test may take. */
const LONG_MS = 200_000;
const claim: Claim = { key: 'invoice:1', ownerId: 'a', ttlMs: LONG_MS };

describeWithServers(['etcd'], 'the etcd store on its server', () => {
  let server: EtcdServer;
  let store: LockStore;
  const opened = new Opened();

  beforeAll(async () => {
    server = await startEtcd();
    store = etcdStore({ hosts: server.url });
  });
  beforeEach(async () => {
    await server.ask('kv/deleterange', { key: 'AA==', range_end: 'AA==' });
    for (const ID of await leases()) await server.ask('lease/revoke', { ID });
  });
  afterAll(async () => {
    await store.close();
    await server.stop();
  });

  it('sends three commands to take a lock, two to renew a hundred, two to give one back, two to find one taken', async () => {
    const proxy = await proxied();
    const counted = storeAt(proxy.url);
    const held = Array.from({ length: 100 }, (_, i): Claim => ({ ...claim, key: `invoice:${i}` }));
    for (const each of held.slice(1)) await store.tryAcquire(each, PATIENCE_MS);
    await counted.tryAcquire(held[0] as Claim, PATIENCE_MS);
    expect(new Set(await counted.renew(held, PATIENCE_MS))).toEqual(new Set(['renewed']));
    await counted.tryAcquire({ ...claim, key: 'invoice:7', ownerId: 'b' }, PATIENCE_MS);
    await counted.release({ ...claim, key: 'invoice:0', keepForMs: 0 }, PATIENCE_MS);
    const commands = proxy.commands.map((path) => path.replace('/v3/', ''));
    // The gateway may leave leases of a batch out, which are then asked for again.
    const once = commands.filter(
      (command, i) => command !== 'lease/keepalive' || commands[i - 1] !== command,
    );
    expect(once).toEqual([
      ...['kv/txn', 'lease/grant', 'kv/txn'],
      ...['lease/keepalive', 'kv/txn'],
      ...['kv/txn', 'lease/timetolive'],
      ...['kv/txn', 'lease/revoke'],
    ]);
  });

  it.each([1_000, 15_000])(
    'wakes who waits when the key becomes free, without asking for it again and again: ttl %d, held',
    async (ttlMs) => {
      const holder = await store.tryAcquire({ ...claim, ttlMs }, PATIENCE_MS);
      expect(holder.kind).toBe('granted');
      await withService({}, async (service, acquired) => {
        const waiting = service.acquire(claim.key, { waitMs: 60_000 });
        if (ttlMs > 1_000) {
          await pause(1_500);
          await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
        }
        await expectSoon(waiting, ttlMs === 1_000 ? 2_000 : 500, serviceAt(server.url));
        expect(acquired.at(-1)?.attempts).toBeLessThanOrEqual(6);
      });
    },
  );

  it('wakes at every release, whoever took the key in between (C090)', async () => {
    await expectWokenAtEveryRelease(store, storeAt(server.url), claim);
  });

  it('hears of releases again after the server was restarted', async () => {
    await store.tryAcquire(claim, PATIENCE_MS);
    const listening = etcdStore({ hosts: server.url });
    await expectWokenAfterRestart(server, claim.key, {
      listening,
      waiting: opened.service(listening),
      beside: serviceAt(server.url),
      release: () => eventually(() => store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS)),
    });
  });

  it('does not take a lock with a lease that has ended before the key was made (C020)', async () => {
    const proxy = await proxied();
    const slow = storeAt(proxy.url);
    const letGo = proxy.hold(2); // the transaction that makes the key
    const taken = slow.tryAcquire({ ...claim, ttlMs: 1_000 }, PATIENCE_MS);
    const refused = expect(taken).rejects.toThrow(/requested lease not found/);
    while (proxy.commands.length < 3) await pause(5);
    await eventually(async () => expect(await leases()).toEqual([]));
    letGo();
    await refused;
    expect(await keys()).toBe(0);
  });

  it('does not take a lock that was given back while its acquire was still under way (C035)', async () => {
    const proxy = await proxied();
    const slow = storeAt(proxy.url);
    const letGo = proxy.hold(2);
    const taken = slow.tryAcquire(claim, PATIENCE_MS).catch((error: unknown) => error);
    while (proxy.commands.length < 3) await pause(5);
    expect(await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS)).toBe('not-owner');
    letGo();
    expect(String(await taken)).toMatch(/requested lease not found/);
    expect(await keys()).toBe(0);
  });

  it('keeps no lease after release, throw, timeout and refusal (C047)', async () => {
    await withService({}, async (service) => {
      await (await service.acquire('a')).release();
      await expect(service.withLock('b', {}, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
      await store.tryAcquire(claim, PATIENCE_MS);
      expect(await service.tryAcquire(claim.key)).toBeNull();
      await expect(service.acquire(claim.key, { waitMs: 300 })).rejects.toMatchObject({
        code: 'LOCK_TIMEOUT',
      });
      const contenders = Array.from({ length: 10 }, (_, i) =>
        store.tryAcquire({ ...claim, key: 'c', ownerId: `${i}` }, PATIENCE_MS),
      );
      await Promise.all(contenders);
    });
    await eventually(async () => expect(await leases()).toHaveLength(2)); // of the two locks that are held
  });

  it('is not confused by a lost answer to any of its commands, and leaves no key behind', async () => {
    const { length } = await useWithout(undefined);
    expect(length).toBeGreaterThanOrEqual(12);
    for (let place = 0; place < length; place += 1) await useWithout(place);
    expect(await keys()).toBe(0);
  });

  it('names its key when it finds a value that never expires, and never calls that busy', async () => {
    await server.ask('kv/put', { key: base64('lock/invoice:1'), value: base64('x') });
    await expect(store.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/"lock\/invoice:1" is not usable/);
  });

  it('refuses offsets that would leave the safe integers (C114)', async () => {
    const high = storeAt(server.url, Number.MAX_SAFE_INTEGER);
    await expect(high.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/lower tokenOffset/);
  });

  /** Takes, renews and gives back where one answer is lost; meanwhile others are kept out, and then they get in. */
  async function useWithout(lost: number | undefined): Promise<readonly string[]> {
    const proxy = await proxied();
    if (lost !== undefined) proxy.loseAnswer(lost);
    const key = `lost:${lost}`;
    const tokens: number[] = [];
    await withService({ hosts: proxy.url, open: false }, async (service) => {
      const lease = await service.acquire(key, { ttlMs: LONG_MS, waitMs: 60_000 });
      tokens.push(lease.token);
      for (const ttlMs of [LONG_MS, 1.5 * LONG_MS]) await eventually(() => lease.extend(ttlMs));
      expect((await store.tryAcquire({ ...claim, key }, PATIENCE_MS)).kind).toBe('busy');
      lease.assertHeld();
      await lease.release().catch((error: unknown) => expect(error).toMatchObject({ outcome: 'committed' }));
    });
    const answer = await store.tryAcquire({ ...claim, key }, PATIENCE_MS);
    if (answer.kind === 'granted') tokens.push(answer.token);
    await store.release({ ...claim, key, keepForMs: 0 }, PATIENCE_MS);
    expect(tokens).toHaveLength(2);
    expect(tokens[1]).toBeGreaterThan(tokens[0] as number);
    return proxy.commands;
  }

  async function proxied(): Promise<CommandProxy> {
    return opened.server(await startCommandProxy(server.url));
  }

  function storeAt(hosts: string, tokenOffset = 0): LockStore {
    return opened.store(etcdStore({ hosts, tokenOffset }));
  }

  function serviceAt(hosts: string): LockService {
    return opened.service(etcdStore({ hosts }));
  }

  /** A service on a store of its own, which is closed with it. */
  async function withService(
    { hosts = server.url, open = true },
    work: (service: LockService, acquired: { attempts: number }[]) => Promise<void>,
  ): Promise<void> {
    const service = new LockService({ stores: { default: etcdStore({ hosts }) } });
    const acquired: { attempts: number }[] = [];
    service.events.subscribe((event) => event.type === 'acquired' && acquired.push(event));
    if (open) await service.open();
    await work(service, acquired).finally(() => service.close(0));
  }

  async function leases(): Promise<string[]> {
    const { leases: found = [] } = (await server.ask('lease/leases', {})) as { leases?: { ID: string }[] };
    return found.map(({ ID }) => ID);
  }

  async function keys(): Promise<number> {
    const { count = '0' } = await server.ask('kv/range', { key: 'AA==', range_end: 'AA==' });
    return Number(count);
  }
});

const base64 = (text: string): string => Buffer.from(text).toString('base64');
