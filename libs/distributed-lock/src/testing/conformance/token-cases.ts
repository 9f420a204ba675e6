import assert from 'node:assert/strict';

import type { ConformanceCase } from './conformance-case.js';
import {
  assertRemaining,
  assertRising,
  claimOn,
  findTaken,
  giveBack,
  LONG_MS,
  newKey,
  PATIENCE_MS,
  pause,
  pauseBeyond,
  shortTtlMs,
  SLACK_MS,
  take,
  takeWithin,
  tryFor,
  withStores,
} from './steps.js';

export const tokenCases: readonly ConformanceCase[] = [
  {
    name: 'never lets a token fall or repeat: not after release, expiry, eviction or a kept key',
    cases: ['C114'],
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const key = newKey();
        const ttlMs = shortTtlMs(one);
        const tokens: number[] = [];
        const released = claimOn(key);
        tokens.push(await take(one, released));
        await giveBack(one, released);
        tokens.push(await take(other, claimOn(key, ttlMs)));
        const afterExpiry = await takeWithin(one, key, ttlMs + SLACK_MS);
        tokens.push(afterExpiry.token);
        await harness.evict(key);
        const kept = await takeWithin(other, key, SLACK_MS);
        tokens.push(kept.token);
        await giveBack(other, kept.claim, one.keepsReleasedKeys ? 50 : 0);
        tokens.push((await takeWithin(one, key, SLACK_MS)).token);
        assertRising(tokens);
      }),
  },
  {
    name: 'never lets a token fall when its client closes and connects again',
    run: async (harness) => {
      const key = newKey();
      const tokens: number[] = [];
      for (let i = 0; i < 3; i += 1) {
        await withStores(harness, 1, async (store) => {
          const claim = claimOn(key);
          tokens.push(await take(store, claim));
          await giveBack(store, claim);
        });
      }
      assertRising(tokens);
    },
  },
  {
    name: 'never lets a token fall over a restart, and connections from before it work again',
    run: (harness) =>
      withStores(harness, 2, async (survivor, before) => {
        const key = newKey();
        const claim = claimOn(key);
        const tokens = [await take(before, claim)];
        await giveBack(before, claim);
        await take(survivor, claimOn(newKey()));
        await harness.restart();
        await withStores(harness, 1, async (after) => {
          const { claim: held, token } = await takeWithin(after, key, SLACK_MS);
          tokens.push(token);
          await giveBack(after, held);
        });
        assertRising(tokens);
        await answersAgain(() => tryFor(survivor, claimOn(newKey())));
      }),
  },
  {
    name: 'answers an acquire that is sent twice with the same token, and counts its ttl anew',
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const key = newKey();
        const claim = claimOn(key, LONG_MS / 4);
        const token = await take(one, claim);
        assert.equal(await take(one, { ...claim, ttlMs: LONG_MS }), token);
        assert.equal(await take(other, { ...claim, ttlMs: LONG_MS }), token);
        assertRemaining(harness, await findTaken(other, key), { moreThan: LONG_MS / 2, atMost: LONG_MS });
      }),
  },
  {
    name: 'keeps an acquire that was sent twice for its second ttl',
    run: (harness) =>
      withStores(harness, 2, async (one, other) => {
        const claim = claimOn(newKey(), shortTtlMs(one));
        await take(one, claim);
        await take(one, { ...claim, ttlMs: LONG_MS });
        await pauseBeyond(harness, claim);
        await findTaken(other, claim.key);
      }),
  },
  {
    name: 'hands out tokens that are safe integers and above its floor',
    cases: ['C114'],
    run: (harness) =>
      withStores(harness, 1, async (store) => {
        const floor = harness.tokenFloor();
        const token = await take(store, claimOn(newKey()));
        assert.ok(Number.isSafeInteger(token), `${token} should be a safe integer`);
        assert.ok(token > floor, `${token} should exceed ${floor}`);
      }),
  },
];

async function answersAgain(command: () => Promise<unknown>): Promise<void> {
  const startedAtMs = performance.now();
  for (;;) {
    try {
      return void (await command());
    } catch (error) {
      if (performance.now() - startedAtMs > PATIENCE_MS) throw error;
      await pause(50); // the connection is still on its way back
    }
  }
}
