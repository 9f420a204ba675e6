import { setTimeout as pause } from 'node:timers/promises';

import type { Claim } from 'nestjs-distributed-lock';

import { eventually } from '../servers/eventually.js';
import { describeWithServers } from '../servers/index.js';
import { claim, ConsulPlace, NAME, PATIENCE_MS, verbOf } from './consul-place.js';

/** Longer than a test may take. */
const LONG_MS = 200_000;

describeWithServers(['consul'], 'the Consul store on its server', () => {
  let place: ConsulPlace;
  beforeAll(async () => void (place = await ConsulPlace.open()));
  beforeEach(() => place.empty());
  afterEach(() => place.tidy());
  afterAll(() => place.close());

  it('sends three commands to take a lock, one to find one taken, two to give one back, 102 to renew a hundred', async () => {
    const proxy = await place.proxied();
    const counted = place.storeAt({ url: proxy.url });
    const held = Array.from({ length: 100 }, (_, i): Claim => ({ ...claim, key: `invoice:${i}` }));
    for (const each of held.slice(1)) await place.store.tryAcquire(each, PATIENCE_MS);
    await counted.tryAcquire(held[0] as Claim, PATIENCE_MS);
    await counted.tryAcquire({ ...claim, key: 'invoice:7', ownerId: 'b' }, PATIENCE_MS);
    await counted.release({ ...claim, key: 'invoice:0', keepForMs: 0 }, PATIENCE_MS);
    expect(proxy.commands.map(verbOf)).toEqual([
      ...['kv', 'session/create', 'txn'],
      ...['kv'],
      ...['txn', 'session/destroy'],
    ]);
    const behind = await place.proxied();
    const own = place.storeAt({ url: behind.url });
    await own.renew(held.slice(1), PATIENCE_MS); // learns where the locks live
    const before = behind.commands.length;
    await own.renew(held.slice(1), PATIENCE_MS);
    const renewal = behind.commands.slice(before).map(verbOf).sort();
    expect(renewal).toEqual([...Array.from({ length: 99 }, () => 'session/renew'), 'txn', 'txn']);
  });

  it('does not take a lock with a session that has ended before the key was made (C020)', async () => {
    const proxy = await place.proxied();
    const slow = place.storeAt({ url: proxy.url });
    const letGo = proxy.hold(2); // the transaction that makes the key
    const taken = expect(slow.tryAcquire({ ...claim, ttlMs: 200 }, PATIENCE_MS)).rejects;
    const refused = taken.toThrow(/invalid session/);
    while (proxy.commands.length < 3) await pause(5);
    await eventually(async () => expect(await place.sessions()).toEqual([]));
    letGo();
    await refused;
    expect(await place.keys()).toEqual([]);
  });

  it.each(['kv', 'session/create', 'txn'])(
    'does not take a lock that was given back while its acquire was still under way, with its %s (C035)',
    async (command) => {
      const proxy = await place.proxied();
      const slow = place.storeAt({ url: proxy.url });
      const nr = ['kv', 'session/create', 'txn'].indexOf(command);
      const letGo = proxy.hold(nr);
      const taken = slow.tryAcquire(claim, PATIENCE_MS);
      const refused = expect(taken).rejects.toThrow();
      while (proxy.commands.length < nr + 1) await pause(5);
      expect(await place.release(slow)).toBe('not-owner');
      letGo();
      await refused;
      await proxy.passed(); // what was held has arrived
      expect(await place.keys()).toEqual([]);
      await eventually(async () => expect(await place.sessions()).toEqual([])); // a late one is ended when it is told
      expect((await slow.tryAcquire(claim, PATIENCE_MS)).kind).toBe('granted'); // the owner id is not spoilt
    },
  );

  it('keeps no session after release, throw, timeout, refusal, eviction and another ttl (C047)', async () => {
    await place.withService({}, async (service) => {
      await (await service.acquire('a')).release();
      await expect(service.withLock('b', {}, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
      await place.store.tryAcquire(claim, PATIENCE_MS);
      expect(await service.tryAcquire(claim.key)).toBeNull();
      await expect(service.acquire(claim.key, { waitMs: 300 })).rejects.toMatchObject({
        code: 'LOCK_TIMEOUT',
      });
      const contenders = Array.from({ length: 10 }, (_, i) =>
        place.store.tryAcquire({ ...claim, key: 'c', ownerId: `${i}` }, PATIENCE_MS),
      );
      await Promise.all(contenders);
      const extended = await service.acquire('d');
      await extended.extend(30_000);
      await extended.release();
      const evicted = { ...claim, key: 'e' };
      await place.store.tryAcquire(evicted, PATIENCE_MS);
      await place.server.ask('DELETE', 'kv/lock/e');
      expect(await place.store.renew([evicted], PATIENCE_MS)).toEqual(['lost']);
    });
    await eventually(async () => expect(await place.sessions()).toHaveLength(2)); // of the two locks that are held
    expect(await place.keys()).toEqual(['lock/c', NAME]);
  });

  it('ends a session whose creation was answered when nobody waited for it any more', async () => {
    const proxy = await place.proxied();
    const slow = place.storeAt({ url: proxy.url });
    const letGo = proxy.hold(1);
    await expect(slow.tryAcquire(claim, 2_000)).rejects.toThrow();
    letGo();
    await eventually(() => expect(proxy.commands.map(verbOf)).toContain('session/destroy'));
    await eventually(async () => expect(await place.sessions()).toEqual([]));
    expect(await place.keys()).toEqual([]);
  });

  it('is not confused by a lost answer to any of its commands, and leaves no key behind', async () => {
    const { length } = await useWithout(undefined);
    expect(length).toBeGreaterThanOrEqual(12);
    await Promise.all(Array.from({ length }, (_, place) => useWithout(place)));
    expect(await place.keys()).toEqual([]);
  });

  it('tells a holder at its next renewal that its session was ended by hand, and takes nothing back (C005)', async () => {
    await place.withService({}, async (service) => {
      const lease = await service.acquire('k', { ttlMs: 6_000 });
      const [session] = await place.sessions();
      await place.server.ask('PUT', `session/destroy/${session?.ID}`);
      await eventually(() => expect(lease.signal.aborted).toBe(true));
      expect(() => lease.assertHeld()).toThrow(
        expect.objectContaining({ code: 'LEASE_LOST', reason: 'taken-over' }),
      );
      await lease.release();
    });
    expect(await place.keys()).toEqual([]);
    expect(await place.sessions()).toEqual([]);
  });

  it('keeps its token, and one session, when another ttl moves the lock to another session', async () => {
    const granted = await place.store.tryAcquire(claim, PATIENCE_MS);
    const [first] = await place.sessions();
    for (const ttlMs of [50_000, 40_000]) {
      expect(await place.store.renew([{ ...claim, ttlMs }], PATIENCE_MS)).toEqual(['renewed']);
    }
    await eventually(async () => expect(await place.sessions()).toMatchObject([{ TTL: '40000ms' }]));
    expect((await place.sessions())[0]?.ID).not.toBe(first?.ID);
    expect(await place.storeAt().tryAcquire({ ...claim, ttlMs: 40_000 }, PATIENCE_MS)).toEqual(granted);
  });

  it('gives back a lock whose move to another session was carried out and not answered', async () => {
    const proxy = await place.proxied();
    const cut = place.storeAt({ url: proxy.url });
    await cut.tryAcquire(claim, PATIENCE_MS);
    proxy.loseAnswer(proxy.commands.length + 3); // after a renewal, a look and a new session
    await expect(cut.renew([{ ...claim, ttlMs: 50_000 }], PATIENCE_MS)).rejects.toThrow();
    expect(proxy.commands.map(verbOf).slice(-4)).toEqual(['session/renew', 'txn', 'session/create', 'txn']);
    expect(await place.sessions()).toHaveLength(2);
    expect(await place.release(cut)).toBe('released');
    expect(await place.keys()).toEqual([]);
    expect(await place.sessions()).toEqual([]);
  });

  it('binds its sessions to no health check', async () => {
    await place.store.tryAcquire(claim, PATIENCE_MS);
    expect(await place.sessions()).toMatchObject([{ Behavior: 'delete', LockDelay: 0, NodeChecks: [] }]);
  });

  it.each(['', '{"ownerId":"a"}'])(
    'takes a lock that was taken from its session by hand: %j',
    async (value) => {
      const first = await place.store.tryAcquire(claim, PATIENCE_MS);
      const [session] = await place.sessions();
      await place.server.ask('PUT', `kv/${NAME}?release=${session?.ID}`, value);
      const next = await place.store.tryAcquire({ ...claim, ownerId: 'b' }, PATIENCE_MS);
      expect(next.kind === 'granted' && next.token).toBeGreaterThan(
        first.kind === 'granted' ? first.token : Infinity,
      );
      expect(await place.store.renew([claim], PATIENCE_MS)).toEqual(['lost']);
      expect(await place.release(place.store)).toBe('not-owner');
      expect((await place.store.tryAcquire({ ...claim, ownerId: 'c' }, PATIENCE_MS)).kind).toBe('busy');
    },
  );

  it.each([
    ['that was never locked', `kv/${NAME}`],
    ['that somebody else locked, and left', `kv/${NAME}?release=`],
  ])(
    'names its key when it finds a value %s, and neither calls that busy nor overwrites it',
    async (_, path) => {
      if (path.endsWith('=')) {
        const { ID } = (await place.server.ask('PUT', 'session/create', { Behavior: 'release' })) as {
          ID: string;
        };
        await place.server.ask('PUT', `kv/${NAME}?acquire=${ID}`, 'x');
        await place.server.ask('PUT', path + ID, 'x');
        await place.server.ask('PUT', `session/destroy/${ID}`);
      } else await place.server.ask('PUT', path, 'x');
      await expect(place.store.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(
        /"lock\/invoice\.3A1" is not usable/,
      );
      expect(await place.server.ask('GET', `kv/${NAME}`)).toMatchObject([{ Value: base64('x') }]);
      expect(await place.sessions()).toEqual([]);
    },
  );

  it('neither overwrites nor locks what was put at its key after it had looked', async () => {
    const proxy = await place.proxied();
    const slow = place.storeAt({ url: proxy.url });
    const letGo = proxy.hold(2); // the transaction that makes the key
    const refusal = expect(slow.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/is not usable/);
    while (proxy.commands.length < 3) await pause(5);
    await place.server.ask('PUT', `kv/${NAME}`, 'x');
    letGo();
    await refusal;
    expect(await place.server.ask('GET', `kv/${NAME}`)).toMatchObject([{ Value: base64('x'), LockIndex: 0 }]);
    expect(await place.sessions()).toEqual([]);
  });

  it('refuses offsets that would leave the safe integers (C114)', async () => {
    const high = place.storeAt({ tokenOffset: Number.MAX_SAFE_INTEGER });
    await expect(high.tryAcquire(claim, PATIENCE_MS)).rejects.toThrow(/lower tokenOffset/);
  });

  /** Takes, renews and gives back where one answer is lost; meanwhile others are kept out, and then they get in. */
  async function useWithout(lost: number | undefined): Promise<readonly string[]> {
    const proxy = await place.proxied();
    if (lost !== undefined) proxy.loseAnswer(lost);
    const key = `lost:${lost}`;
    const tokens: number[] = [];
    await place.withService({ url: proxy.url, open: false }, async (service) => {
      const lease = await service.acquire(key, { ttlMs: LONG_MS, waitMs: 60_000 });
      tokens.push(lease.token);
      for (const ttlMs of [LONG_MS, 1.5 * LONG_MS]) await eventually(() => lease.extend(ttlMs));
      expect((await place.store.tryAcquire({ ...claim, key }, PATIENCE_MS)).kind).toBe('busy');
      lease.assertHeld();
      await lease.release().catch((error: unknown) => expect(error).toMatchObject({ outcome: 'committed' }));
    });
    const answer = await place.store.tryAcquire({ ...claim, key }, PATIENCE_MS);
    if (answer.kind === 'granted') tokens.push(answer.token);
    await place.store.release({ ...claim, key, keepForMs: 0 }, PATIENCE_MS);
    expect(tokens).toHaveLength(2);
    expect(tokens[1]).toBeGreaterThan(tokens[0] as number);
    return proxy.commands;
  }
});

const base64 = (text: string): string => Buffer.from(text).toString('base64');
