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
  outlive,
  renewOne,
  shortTtlMs,
  SLACK_MS,
  take,
  takeWithin,
  withStores,
} from './steps.js';

export const releaseCases: readonly ConformanceCase[] = [
  {
    name: 'frees a released key at once, for every connection',
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey());
        await take(one, claim);
        assert.equal(await giveBack(one, claim), 'released');
        await findFree(harness, other, claim.key);
      }),
  },
  {
    name: 'does not let a late owner release its successor',
    cases: ['C082', 'C112'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const late = claimOn(newKey());
        await take(one, late);
        await harness.evict(late.key);
        const { claim: successor } = await takeWithin(other, late.key, SLACK_MS);
        assert.equal(await giveBack(one, late), 'not-owner');
        assert.equal(await giveBack(one, late, LONG_MS), 'not-owner');
        await findTaken(one, late.key);
        assert.equal(await renewOne(other, successor), 'renewed');
      }),
  },
  {
    name: 'answers a release that is sent twice, and one of a key that was never taken',
    cases: ['C032'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey());
        assert.equal(await giveBack(one, claim), 'not-owner');
        await take(one, claim);
        assert.equal(await giveBack(one, claim), 'released');
        assert.equal(await giveBack(other, claim), 'not-owner');
        await findFree(harness, other, claim.key);
      }),
  },
  {
    name: 'does not release a grant that has expired',
    cases: ['C032'],
    run: (harness) =>
      withStores(harness, 1, async (store) => {
        const claim = claimOn(newKey(), shortTtlMs(store));
        await take(store, claim);
        await outlive(harness, claim);
        assert.equal(await giveBack(store, claim), 'not-owner');
        await takeWithin(store, claim.key, SLACK_MS);
      }),
  },
  {
    name: 'keeps a key taken after its release for as long as asked, or frees it where it cannot',
    cases: ['C055'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey(), LONG_MS / 4);
        await take(one, claim);
        assert.equal(await giveBack(one, claim, LONG_MS), 'released');
        if (!one.keepsReleasedKeys) return findFree(harness, other, claim.key);
        assertRemaining(harness, await findTaken(other, claim.key), {
          moreThan: LONG_MS / 2,
          atMost: LONG_MS,
        });
      }),
  },
  {
    name: 'frees a kept key when its time is over, also when the ttl was longer',
    cases: ['C055'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey());
        await take(one, claim);
        const keepForMs = 300;
        const sentAtMs = performance.now();
        assert.equal(await giveBack(one, claim, keepForMs), 'released');
        if (!one.keepsReleasedKeys) return findFree(harness, other, claim.key);
        await takeWithin(other, claim.key, keepForMs + SLACK_MS);
        const freeAfterMs = performance.now() - sentAtMs;
        assert.ok(freeAfterMs >= keepForMs - 2, `free after ${freeAfterMs} of ${keepForMs} ms`);
      }),
  },
  {
    name: 'gives a kept key to nobody: its last owner can neither renew, release nor take it',
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey());
        await take(one, claim);
        assert.equal(await giveBack(one, claim, LONG_MS / 4), 'released');
        assert.equal(await renewOne(one, claim), 'lost');
        if (!one.keepsReleasedKeys) return findFree(harness, other, claim.key);
        assert.equal(await giveBack(one, claim), 'not-owner');
        assert.equal(await giveBack(one, claim, LONG_MS), 'not-owner');
        assert.equal((await one.tryAcquire(claim, LONG_MS)).kind, 'busy');
        assertRemaining(harness, await findTaken(other, claim.key), { moreThan: 0, atMost: LONG_MS / 4 });
      }),
  },
];
