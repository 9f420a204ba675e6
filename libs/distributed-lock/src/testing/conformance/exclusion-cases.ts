import assert from 'node:assert/strict';

import type { LockStore } from '../../core/index.js';
import type { ConformanceCase } from './conformance-case.js';
import {
  assertRemaining,
  claimOn,
  findFree,
  findTaken,
  giveBack,
  LONG_MS,
  newKey,
  outlive,
  PATIENCE_MS,
  renewOne,
  shortTtlMs,
  SLACK_MS,
  STEPS_BEHIND,
  take,
  takeWithin,
  tryFor,
  withStores,
} from './steps.js';

export const exclusionCases: readonly ConformanceCase[] = [
  {
    name: 'gives a free key to one owner and refuses every other, on its own connection and on another',
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const key = newKey();
        await take(one, claimOn(key));
        await findTaken(one, key);
        await findTaken(other, key);
        if (harness.peek) assert.equal(await harness.peek(key), 'taken');
      }),
  },
  {
    name: 'gives a fresh key to exactly one of 40 contenders that start together',
    cases: ['C062', 'C111', 'C124'],
    run: (harness) =>
      withStores(harness, 4, async (...stores) => {
        const key = newKey();
        const contenders = stores.flatMap((store) => Array.from({ length: 10 }, () => store));
        assert.equal(await countGrants(contenders, key), 1, 'grants of one key');
      }),
  },
  {
    name: 'gives an expired key to exactly one of 20 contenders that wait for it',
    run: (harness) =>
      withStores(harness, 4, async (...stores) => {
        const key = newKey();
        const claim = claimOn(key, shortTtlMs(stores[0]));
        await take(stores[0], claim);
        await outlive(harness, claim);
        const contenders = stores.flatMap((store) => Array.from({ length: 5 }, () => store));
        const giveUpAtMs = performance.now() + PATIENCE_MS;
        let grants = 0;
        // Its place may look at what has ended only now and then: all ask together until the key is free.
        while (grants === 0) {
          assert.ok(performance.now() < giveUpAtMs, `"${key}" stays taken`);
          grants = await countGrants(contenders, key);
        }
        assert.equal(grants, 1, 'grants of one key');
        assert.equal(await countGrants(contenders, key), 0, 'grants of a taken key');
      }),
  },
  {
    name: 'lets nobody in before the ttl has passed, and somebody soon after',
    run: (harness) =>
      withStores(harness, 2, async (holder, other) => {
        const key = newKey();
        const ttlMs = shortTtlMs(holder);
        const sentAtMs = performance.now();
        await take(holder, claimOn(key, ttlMs));
        await takeWithin(other, key, ttlMs + SLACK_MS);
        const takenAfterMs = performance.now() - sentAtMs;
        assert.ok(takenAfterMs >= ttlMs - 2, `the next owner came after ${takenAfterMs} of ${ttlMs} ms`);
      }),
  },
  {
    name: 'tells how long a taken key remains so',
    run: (harness) =>
      withStores(harness, 2, async (holder, other) => {
        const key = newKey();
        await take(holder, claimOn(key));
        assertRemaining(harness, await findTaken(other, key), { moreThan: LONG_MS / 2, atMost: LONG_MS });
      }),
  },
  {
    name: 'does not wait for the holder of a taken key',
    run: (harness) =>
      withStores(harness, 2, async (holder, other) => {
        const key = newKey();
        await take(holder, claimOn(key));
        const freeMs = await timeOf(() => take(other, claimOn(newKey())));
        const takenMs = await timeOf(() => findTaken(other, key));
        assert.ok(takenMs < SLACK_MS + STEPS_BEHIND * freeMs, `busy was answered after ${takenMs} ms`);
      }),
  },
  {
    name: 'keeps two keys apart, and many that are taken at once',
    cases: ['C124'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claims = Array.from({ length: 20 }, () => claimOn(newKey()));
        await Promise.all(claims.map((claim, i) => take(i % 2 ? one : other, claim)));
        const [first, ...others] = claims as [(typeof claims)[0], ...typeof claims];
        assert.equal(await giveBack(one, first), 'released');
        await findFree(harness, other, first.key);
        for (const claim of others) assert.equal(await renewOne(one, claim), 'renewed');
      }),
  },
  {
    name: 'can be closed twice',
    run: async (harness) => {
      const store = await harness.connect();
      await take(store, claimOn(newKey()));
      await store.close();
      await store.close();
    },
  },
];

async function timeOf(step: () => Promise<unknown>): Promise<number> {
  const startedAtMs = performance.now();
  await step();
  return performance.now() - startedAtMs;
}

/** Asks for the key with all of them at once, each for an owner of its own. */
async function countGrants(contenders: readonly LockStore[], key: string): Promise<number> {
  const answers = await Promise.all(contenders.map((store) => tryFor(store, claimOn(key))));
  return answers.filter(({ kind }) => kind === 'granted').length;
}
