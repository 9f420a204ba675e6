import assert from 'node:assert/strict';

import type { ConformanceCase } from './conformance-case.js';
import {
  assertRemaining,
  claimOn,
  findFree,
  findTaken,
  giveBack,
  LONG_MS,
  newKey,
  PATIENCE_MS,
  outlive,
  pauseBeyond,
  renewOne,
  shortTtlMs,
  take,
  takeWithin,
  SLACK_MS,
  withStores,
} from './steps.js';

export const renewalCases: readonly ConformanceCase[] = [
  {
    name: 'renews a grant for the ttl that the renewal asks for',
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey(), shortTtlMs(one));
        await take(one, claim);
        assert.equal(await renewOne(one, { ...claim, ttlMs: LONG_MS }), 'renewed');
        await pauseBeyond(harness, claim);
        assertRemaining(harness, await findTaken(other, claim.key), {
          moreThan: LONG_MS / 2,
          atMost: LONG_MS,
        });
        assert.equal(await renewOne(one, { ...claim, ttlMs: shortTtlMs(one) }), 'renewed');
        await takeWithin(other, claim.key, shortTtlMs(one) + SLACK_MS);
      }),
  },
  {
    name: 'does not let a late owner renew the grant of its successor',
    cases: ['C089', 'C112'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const late = claimOn(newKey());
        await take(one, late);
        await harness.evict(late.key);
        const { claim: successor } = await takeWithin(other, late.key, SLACK_MS);
        assert.equal(await renewOne(one, late), 'lost');
        assert.equal(await renewOne(other, { ...successor, ttlMs: shortTtlMs(other) }), 'renewed');
        assert.equal(await renewOne(one, late), 'lost');
        await takeWithin(one, late.key, shortTtlMs(other) + SLACK_MS); // so the late renewal lengthened nothing
      }),
  },
  {
    name: 'never brings back a grant that was evicted',
    cases: ['C089'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey());
        await take(one, claim);
        await harness.evict(claim.key);
        assert.equal(await renewOne(one, claim), 'lost');
        await findFree(harness, other, claim.key);
      }),
  },
  {
    name: 'never brings back a grant that has expired',
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey(), shortTtlMs(one));
        await take(one, claim);
        const { claim: successor } = await takeWithin(other, claim.key, claim.ttlMs + SLACK_MS);
        await giveBack(other, successor);
        assert.equal(await renewOne(one, claim), 'lost');
        await findFree(harness, other, claim.key);
      }),
  },
  {
    name: 'does not renew a grant that has expired and that nobody took',
    run: (harness) =>
      withStores(harness, 1, async (store) => {
        const claim = claimOn(newKey(), shortTtlMs(store));
        await take(store, claim);
        await outlive(harness, claim);
        assert.equal(await renewOne(store, claim), 'lost');
      }),
  },
  {
    name: 'never brings back a released grant, also when renewal and release cross on two connections',
    cases: ['C001', 'C080'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const key = newKey();
        for (let round = 0; round < 25; round += 1) {
          const claim = claimOn(key);
          await take(one, claim);
          const [, released] = await Promise.all([renewOne(other, claim), giveBack(one, claim)]);
          assert.equal(released, 'released');
          assert.equal(await renewOne(other, claim), 'lost');
          await findFree(harness, other, key);
        }
      }),
  },
  {
    name: 'answers a batch in order, mixing renewed and lost, each with its own ttl',
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const mine = Array.from({ length: 7 }, () => claimOn(newKey(), LONG_MS / 4));
        for (const claim of mine) await take(one, claim);
        const batch = mine.map((claim, i) => {
          if (i % 3 === 1) return claimOn(claim.key); // somebody else's
          return i === 5 ? claimOn(newKey()) : { ...claim, ttlMs: LONG_MS - i * 10_000 };
        });
        const expected = batch.map((_, i) => (i % 3 === 1 || i === 5 ? 'lost' : 'renewed'));
        const sentAtMs = performance.now();
        assert.deepEqual(await one.renew(batch, PATIENCE_MS), expected);
        for (const [i, { key, ttlMs }] of batch.entries()) {
          if (expected[i] === 'lost') continue;
          const remainingMs = await findTaken(other, key);
          const passedMs = performance.now() - sentAtMs;
          assertRemaining(harness, remainingMs, { moreThan: ttlMs - passedMs - SLACK_MS, atMost: ttlMs });
        }
      }),
  },
  {
    name: 'renews a hundred grants in one batch, and none in an empty one',
    run: (harness) =>
      withStores(harness, 1, async (store) => {
        const claims = Array.from({ length: 100 }, () => claimOn(newKey()));
        await Promise.all(claims.map((claim) => take(store, claim)));
        assert.deepEqual(
          await store.renew(claims, PATIENCE_MS),
          Array.from(claims, () => 'renewed'),
        );
        assert.deepEqual(await store.renew([], PATIENCE_MS), []);
      }),
  },
];
