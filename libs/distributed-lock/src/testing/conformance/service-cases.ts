import assert from 'node:assert/strict';

import { hasCode, LockService, type LockStore } from '../../core/index.js';
import type { ConformanceCase, LockStoreHarness } from './conformance-case.js';
import {
  assertRising,
  claimOn,
  findFree,
  findTaken,
  LONG_MS,
  newKey,
  pause,
  renewOne,
  roomyTtlMs,
  shortTtlMs,
  SLACK_MS,
  take,
  takeWithin,
  tryFor,
  withStores,
} from './steps.js';

const INCREMENTS = 10;

export const serviceCases: readonly ConformanceCase[] = [
  {
    name: 'loses no increment of several processes that count under one lock, and its tokens follow their order',
    cases: ['C140'],
    run: (harness) =>
      withServices(harness, 3, async (services) => {
        const key = newKey();
        const history: { enteredAtMs: number; leftAtMs: number; token: number }[] = [];
        let count = 0;
        const increment = (service: LockService): Promise<void> =>
          service.withLock(key, { waitMs: LONG_MS }, async ({ token }) => {
            const enteredAtMs = performance.now();
            const read = count;
            await pause(1);
            count = read + 1;
            history.push({ enteredAtMs, leftAtMs: performance.now(), token });
          });
        await Promise.all(
          services.map(async (service) => {
            for (let i = 0; i < INCREMENTS; i += 1) await increment(service);
          }),
        );
        assert.equal(count, services.length * INCREMENTS);
        const ordered = history.sort((a, b) => a.enteredAtMs - b.enteredAtMs);
        const overlap = ordered.find(
          (entry, i) => i > 0 && entry.enteredAtMs < (ordered[i - 1]?.leftAtMs ?? 0),
        );
        assert.equal(overlap, undefined, 'two owners at once');
        assertRising(ordered.map(({ token }) => token));
      }),
  },
  {
    name: 'keeps a lease alive for three ttls while its holder works',
    run: (harness) =>
      withServices(harness, 1, ([service], [store]) =>
        withStores(harness, 1, async (other) => {
          await withKeepableTtl(store, async (ttlMs, step) => {
            const key = newKey();
            const lease = await service.acquire(key, { ttlMs });
            const endsAtMs = performance.now() + 3 * ttlMs;
            while (performance.now() < endsAtMs) {
              await step(() => findTaken(other, key));
              await step(() => pause(ttlMs / 10));
            }
            lease.assertHeld();
            assert.equal(await step(() => lease.release()), 'released');
            await findFree(harness, other, key);
          });
        }),
      ),
  },
  {
    name: 'tells a holder at its next renewal that it was evicted, and takes nothing back',
    cases: ['C089', 'C102'],
    run: (harness) =>
      withServices(harness, 1, ([service], [store]) =>
        withStores(harness, 1, async (other) => {
          await withKeepableTtl(store, async (ttlMs, step) => {
            const key = newKey();
            let toldInside = false;
            const work = service.withLock(key, { ttlMs }, async ({ signal }) => {
              await step(() => harness.evict(key));
              const endsAtMs = performance.now() + 2 * ttlMs;
              while (!signal.aborted && performance.now() < endsAtMs) {
                await step(() => renewOne(other, claimOn(key))); // a stranger's, which measures what one takes
                await step(() => pause(ttlMs / 100));
              }
              toldInside = signal.aborted;
            });
            // Not by its release, and not by the end of the lease, which would be another reason.
            await assert.rejects(work, { code: 'LEASE_LOST', reason: 'taken-over' });
            assert.ok(toldInside, 'a renewal should have told');
            await findFree(harness, other, key);
          });
        }),
      ),
  },
  {
    name: 'leaves nothing behind of an acquire whose answer never came',
    cases: ['C041'],
    run: (harness) =>
      withStores(harness, 2, async (store, other) => {
        const key = newKey();
        const service = new LockService({ stores: { default: unanswering(store) } });
        const ttlMs = shortTtlMs(store) * 5;
        const refusal = await service.acquire(key, { ttlMs, waitMs: 100 }).catch((error: unknown) => error);
        assert.ok(
          hasCode(refusal, 'STORE_UNAVAILABLE'),
          `expected STORE_UNAVAILABLE, got ${String(refusal)}`,
        );
        await takeWithin(other, key, ttlMs + SLACK_MS);
        await service.close(0);
      }),
  },
  {
    name: 'lets an acquire whose holder died end with its ttl',
    cases: ['C126'],
    run: (harness) =>
      withStores(harness, 1, async (other) => {
        const store = await harness.connect();
        const claim = claimOn(newKey(), shortTtlMs(store));
        await take(store, claim);
        await store.close();
        await takeWithin(other, claim.key, claim.ttlMs + SLACK_MS);
      }),
  },
  {
    name: 'keeps a key for its minimum hold beyond release and shutdown, or refuses to promise it',
    cases: ['C055'],
    run: (harness) =>
      withServices(harness, 1, ([service], [store]) =>
        withStores(harness, 1, async (other) => {
          const key = newKey();
          const held = service.withLock(key, { ttlMs: LONG_MS, minHoldMs: LONG_MS / 2 }, () => 'done');
          if (!store.keepsReleasedKeys) return assert.rejects(held, { code: 'LOCK_CONFIG_INVALID' });
          assert.equal(await held, 'done');
          await service.close();
          await findTaken(other, key);
        }),
      ),
  },
];

type Step = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * A case that fails says nothing of the store if one of its steps took longer than a renewal may: it is tried again
 * with a longer ttl, until no step takes so long.
 */
async function withKeepableTtl(
  store: LockStore,
  work: (ttlMs: number, step: Step) => Promise<void>,
): Promise<void> {
  for (let ttlMs = roomyTtlMs(store); ; ttlMs *= 3) {
    let slowestMs = 0;
    const step: Step = async (each) => {
      const startedAtMs = performance.now();
      return each().finally(() => (slowestMs = Math.max(slowestMs, performance.now() - startedAtMs)));
    };
    try {
      return await work(ttlMs, step);
    } catch (error) {
      if (slowestMs < ttlMs / 3 || ttlMs * 3 > LONG_MS) throw error;
    }
  }
}

/** Services of processes of their own; closed in the end, together with their stores. */
async function withServices<Count extends 1 | 3>(
  harness: LockStoreHarness,
  count: Count,
  work: (services: Many<LockService>, stores: Many<LockStore>) => Promise<void>,
): Promise<void> {
  const services: LockService[] = [];
  const stores: LockStore[] = [];
  try {
    while (services.length < count) {
      const store = await harness.connect();
      stores.push(store);
      services.push(new LockService({ stores: { default: store } }));
    }
    await work(services as unknown as Many<LockService>, stores as unknown as Many<LockStore>);
  } finally {
    await Promise.all(services.map((service) => service.close(0)));
  }
}

type Many<T> = readonly [T, ...T[]];

/** Does what an acquire asks for, and never says so. */
function unanswering(store: LockStore): LockStore {
  return {
    kind: store.kind,
    minTtlMs: store.minTtlMs,
    keepsReleasedKeys: store.keepsReleasedKeys,
    tryAcquire: async (claim) => {
      await tryFor(store, claim);
      return new Promise(() => undefined);
    },
    renew: (claims, timeoutMs) => store.renew(claims, timeoutMs),
    release: (request, timeoutMs) => store.release(request, timeoutMs),
    close: () => Promise.resolve(),
  };
}
