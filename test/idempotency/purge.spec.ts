import { setTimeout as sleep } from 'node:timers/promises';

import { IdempotencyService, LockService, memoryStore, type IdempotencyStore } from 'nestjs-distributed-lock';

import { bareStore } from './bare-store.js';
import { claimOn, done, newId, settle, stateOf, take } from './record-steps.js';
import { describeOnEachStore, type StorePlace } from './each-store.js';

describeOnEachStore('a purge', (start) => {
  let place: StorePlace;
  let store: IdempotencyStore;
  const lockStore = memoryStore();
  const locks = (): LockService => new LockService({ stores: { default: lockStore } });

  beforeAll(async () => {
    place = await start();
    store = place.connect();
  });
  afterAll(async () => {
    await store.close();
    await place.stop();
  });

  it('deletes what has expired, in batches, by one process at a time, and leaves the rest', async () => {
    const alive = claimOn(newId());
    await take(store, alive);
    const expired = Array.from({ length: 25 }, () => claimOn(newId()));
    for (const claim of expired) {
      await take(store, claim);
      await settle(store, claim, done('1', 1));
    }
    await sleep(100); // the store's clock decides, and it is not ours to move
    const batches = jest.spyOn(store, 'purge');
    const two = [new IdempotencyService({ store }), new IdempotencyService({ store })];
    const purged = await Promise.all(
      two.map((service) => service.purge(locks(), { batchSize: 10, pauseMs: 1 })),
    );
    const expected = store.kind === 'redis' ? [0, 0] : [0, 25];
    expect(purged.sort((a, b) => a - b)).toEqual(expected);
    expect(batches.mock.calls.map(([limit]) => limit)).toEqual(store.kind === 'redis' ? [10] : [10, 10, 10]);
    expect(await stateOf(store, alive.id)).toBe('running');
    batches.mockRestore();
  });

  it('ends after its batch when it is told to, and stops when its lock is lost', async () => {
    const service = new IdempotencyService({
      store: { ...bareStore(store), purge: (limit) => Promise.resolve(limit) },
    });
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 50);
    expect(
      await service.purge(locks(), { batchSize: 5, pauseMs: 10, signal: stop.signal }),
    ).toBeGreaterThanOrEqual(5);
    const lost = memoryStore();
    jest.spyOn(lost, 'renew').mockResolvedValue(['lost']);
    const losing = new LockService({ stores: { default: lost }, defaults: { ttlMs: 60 } });
    await expect(service.purge(losing, { batchSize: 5, pauseMs: 5 })).rejects.toMatchObject({
      code: 'LEASE_LOST',
    });
  });
});
