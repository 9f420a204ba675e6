import assert from 'node:assert/strict';

import type { IdempotencyConformanceCase } from './conformance-case.js';
import {
  abandoned,
  ask,
  assertDone,
  claimOn,
  done,
  freed,
  lapsed,
  LONG_MS,
  newId,
  PATIENCE_MS,
  pause,
  read,
  resultOf,
  settle,
  stateOf,
  take,
  withStores,
} from './steps.js';

export const operatorCases: readonly IdempotencyConformanceCase[] = [
  {
    name: 'resolves lapsed and abandoned records, for as long as asked, and no others',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const resolve = (id: string, keepMs = LONG_MS): Promise<string> =>
          other.resolve(id, resultOf('"found"'), keepMs, PATIENCE_MS);
        assert.equal(await resolve(newId()), 'refused');
        for (const ending of [lapsed(true), abandoned]) {
          const claim = claimOn(newId());
          await take(one, claim);
          assert.equal(await resolve(claim.id), 'refused');
          await settle(one, claim, ending);
          assert.equal(await resolve(claim.id), 'resolved');
          await assertDone(one, claim.id, '"found"');
          assert.equal(await resolve(claim.id), 'refused');
          assert.equal(await settle(one, claim, done('"mine"')), 'refused');
        }
        const failed = claimOn(newId());
        await take(one, failed);
        await settle(one, failed, freed(true));
        assert.equal(await resolve(failed.id), 'refused');
        const brief = claimOn(newId());
        await take(one, brief);
        await settle(one, brief, abandoned);
        assert.equal(await resolve(brief.id, 30), 'resolved');
        await pause(150);
        assert.equal(await read(one, brief.id), null);
      }),
  },
  {
    name: 'resolves a record whose owner is late, and refuses that owner',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId(), { leaseMs: 30 });
        await take(one, claim);
        await pause(100);
        assert.equal(await other.resolve(claim.id, resultOf('"found"'), LONG_MS, PATIENCE_MS), 'resolved');
        assert.equal(await settle(one, claim, done('"late"')), 'refused');
        await assertDone(one, claim.id, '"found"');
      }),
  },
  {
    name: 'forgets any record but a running one, and never lets the fence of its successor fall',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const forget = (id: string): Promise<string> => other.forget(id, PATIENCE_MS);
        assert.equal(await forget(newId()), 'absent');
        for (const ending of [done('1'), abandoned, lapsed(true), freed(true)]) {
          const claim = claimOn(newId());
          const { fence } = await take(one, claim);
          assert.equal(await forget(claim.id), 'running');
          assert.equal(await settle(one, claim, ending), 'settled');
          assert.equal(await forget(claim.id), 'forgotten');
          assert.equal(await forget(claim.id), 'absent');
          assert.equal(await read(one, claim.id), null);
          const next = await take(one, claimOn(claim.id, { fingerprint: '1:other' }));
          assert.deepEqual([next.attempt, next.takenOver], [1, false]);
          assert.ok(next.fence > fence, `${next.fence} should be more than ${fence}`);
        }
      }),
  },
  {
    name: 'shows a record as it is',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId(), { label: 'payout:<id>' });
        const { fence } = await take(one, claim);
        const seen = await read(other, claim.id);
        const known = { attempt: 1, fence, fingerprint: '1:same', label: 'payout:<id>' };
        assert.ok(seen && seen.leaseRemainingMs !== null);
        assert.ok(seen.leaseRemainingMs > LONG_MS / 2 && seen.leaseRemainingMs <= LONG_MS);
        assert.ok(seen.expiresInMs > 1.5 * LONG_MS && seen.expiresInMs <= 2 * LONG_MS);
        assert.deepEqual(
          { ...seen, leaseRemainingMs: 1, expiresInMs: 1 },
          { ...known, state: 'running', leaseRemainingMs: 1, expiresInMs: 1, result: null },
        );
        await settle(one, claim, done('"1"', LONG_MS / 2));
        const after = await read(other, claim.id);
        assert.ok(after && after.expiresInMs > LONG_MS / 4 && after.expiresInMs <= LONG_MS / 2);
        assert.deepEqual(
          { ...after, expiresInMs: 1 },
          { ...known, state: 'done', leaseRemainingMs: null, expiresInMs: 1, result: resultOf('"1"') },
        );
      }),
  },
  {
    name: 'takes an expired record for absent in every call, whether or not it is still stored',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const [answered, given, failed] = [claimOn(newId()), claimOn(newId()), claimOn(newId())];
        const fences: number[] = [];
        for (const claim of [answered, given, failed]) fences.push((await take(one, claim)).fence);
        await settle(one, answered, done('1', 30));
        await settle(one, given, { kind: 'abandoned', keepMs: 30 });
        await settle(one, failed, { kind: 'freed', countsAttempt: true, keepMs: 30 });
        await pause(200);
        for (const [i, { id }] of [answered, given, failed].entries()) {
          assert.equal(await read(other, id), null);
          assert.equal(await other.forget(id, PATIENCE_MS), 'absent');
          assert.equal(await other.resolve(id, resultOf('2'), LONG_MS, PATIENCE_MS), 'refused');
          const next = await take(other, claimOn(id, { fingerprint: '1:other' }));
          assert.deepEqual([next.attempt, next.takenOver], [1, false]);
          assert.ok(next.fence > (fences[i] as number));
        }
      }),
  },
  {
    name: 'purges what has expired, in batches, and nothing else',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        while ((await one.purge(1_000, PATIENCE_MS)) > 0);
        const alive = [claimOn(newId()), claimOn(newId()), claimOn(newId()), claimOn(newId())] as const;
        for (const claim of alive) await take(one, claim);
        await settle(one, alive[1], done('1'));
        await settle(one, alive[2], abandoned);
        await settle(one, alive[3], lapsed(true));
        const expired = Array.from({ length: 5 }, () => claimOn(newId()));
        for (const claim of expired) {
          await take(one, claim);
          await settle(one, claim, done('1', 20));
        }
        await pause(150);
        const batches = [await other.purge(3, PATIENCE_MS)];
        while (batches.at(-1) !== 0) batches.push(await one.purge(3, PATIENCE_MS));
        assert.ok(Math.max(...batches) <= 3, `batches of ${batches.join(', ')}`);
        const deleted = batches.reduce((sum, count) => sum + count);
        // Records of others in the same place may have expired meanwhile.
        assert.ok(harness.purgesItself ? deleted === 0 : deleted >= expired.length, `${deleted} deleted`);
        const states = await Promise.all(alive.map(({ id }) => stateOf(one, id)));
        assert.deepEqual(states, ['running', 'done', 'abandoned', 'lapsed']);
        assert.equal((await ask(one, claimOn(alive[0].id))).kind, 'running');
      }),
  },
];
