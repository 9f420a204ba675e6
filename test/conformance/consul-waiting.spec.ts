import { setTimeout as pause } from 'node:timers/promises';

import { eventually } from '../servers/eventually.js';
import { describeWithServers } from '../servers/index.js';
import { claim, ConsulPlace, PATIENCE_MS, verbOf } from './consul-place.js';
import { expectSoon } from './expect-soon.js';

const LOCK_DELAY_MS = 2_500;

describeWithServers(['consul'], 'who waits for a lock in Consul', () => {
  let place: ConsulPlace;
  beforeAll(async () => void (place = await ConsulPlace.open()));
  beforeEach(() => place.empty());
  afterEach(() => place.tidy());
  afterAll(() => place.close());

  it.each([
    ['released', 15_000, 700],
    ['left to end with their sessions', 1_000, 2_700],
  ])(
    'wakes all who wait for locks that are %s, at once and without a crowd of tries',
    async (how, ttlMs, limitMs) => {
      const claims = Array.from({ length: 8 }, (_, i) => ({ ...claim, key: `invoice:${i}`, ttlMs }));
      for (const each of claims) await place.store.tryAcquire(each, PATIENCE_MS);
      await place.withService({}, (beside) =>
        place.withService({}, async (service, acquired) => {
          const waiting = claims.map(({ key }) => service.acquire(key, { waitMs: 60_000 }));
          if (how === 'released') {
            await pause(1_500);
            for (const each of claims) await place.release(place.store, each);
          }
          await expectSoon(waiting, limitMs, beside);
          expect(Math.max(...acquired.map(({ attempts }) => attempts))).toBeLessThanOrEqual(6);
        }),
      );
    },
  );

  it('wakes at every release, whoever took the key in between, and not when it stays taken (C090)', async () => {
    let woken = 0;
    const watch = place.store.watch?.(claim.key, () => (woken += 1));
    const other = place.storeAt();
    for (let i = 0; i < 5; i += 1) {
      const owner = { ...claim, ownerId: `${i}` };
      await other.tryAcquire(owner, PATIENCE_MS);
      await eventually(() => expect(watch?.hears).toBe(true));
      await pause(150);
      const before = woken;
      await other.renew([{ ...owner, ttlMs: 50_000 }], PATIENCE_MS); // moves it to another session
      await pause(150);
      expect(woken).toBe(before);
      await place.release(other, owner);
      await eventually(() => expect(woken).toBeGreaterThan(before));
    }
    watch?.stop();
    const before = woken;
    await other.tryAcquire(claim, PATIENCE_MS);
    await place.release(other);
    await pause(200);
    expect(woken).toBe(before);
  });

  it('wakes some and lets others ask when more keys are waited for than there are connections for', async () => {
    const keys = Array.from({ length: 8 }, (_, i) => `many:${i}`);
    for (const key of keys) await place.store.tryAcquire({ ...claim, key }, PATIENCE_MS);
    // What is measured beside is not to wait for the same six connections.
    await place.withService({}, (beside) =>
      place.withService({ maxConnections: 6 }, async (service) => {
        const waiting = keys.map((key) => service.acquire(key, { waitMs: 60_000 }));
        await pause(500);
        for (const key of keys) await place.store.release({ ...claim, key, keepForMs: 0 }, PATIENCE_MS);
        await expectSoon(waiting, 1_500, beside);
      }),
    );
  });

  it('closes keys for their lock-delay after a session has ended under them, and not after a release', async () => {
    const proxy = await place.proxied();
    const delayed = place.storeAt({ lockDelayMs: LOCK_DELAY_MS });
    const claims = Array.from({ length: 8 }, (_, i) => ({ ...claim, key: `invoice:${i}` }));
    for (const each of claims) {
      await delayed.tryAcquire(each, PATIENCE_MS);
      expect(await place.release(delayed, each)).toBe('released');
      expect((await delayed.tryAcquire(each, PATIENCE_MS)).kind).toBe('granted');
    }
    const endingAtMs = performance.now();
    for (const { ID } of await place.sessions()) await place.server.ask('PUT', `session/destroy/${ID}`);
    const stopWriting = place.keepWriting('other'); // which wakes all who wait for a key that is not there
    // What is measured beside takes a session each time: it goes past the proxy, where tries are counted.
    await place.withService({}, (beside) =>
      place.withService({ url: proxy.url }, async (service) => {
        const acquiring = claims.map(({ key }) => service.acquire(key, { waitMs: 60_000 }));
        const first = Promise.race(acquiring).then(() => performance.now());
        await expectSoon(acquiring, LOCK_DELAY_MS + 1_300, beside);
        expect((await first) - endingAtMs).toBeGreaterThanOrEqual(LOCK_DELAY_MS - 50);
      }),
    );
    await stopWriting();
    const tries = proxy.commands.filter((path) => verbOf(path) === 'session/create');
    expect(tries.length).toBeLessThanOrEqual(claims.length * 7);
  });
});
