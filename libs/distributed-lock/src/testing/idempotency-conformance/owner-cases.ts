import assert from 'node:assert/strict';

import type { IdempotencyConformanceCase } from './conformance-case.js';
import {
  allEndings,
  assertDone,
  ask,
  claimOn,
  done,
  freed,
  lapsed,
  LONG_MS,
  newId,
  pause,
  read,
  renew,
  settle,
  stateOf,
  take,
  withStores,
} from './steps.js';

/** Of a lease, and again of what is kept beyond it: over soon, and not before a slow machine has renewed it. */
const BRIEF_MS = 2_000;
const bodies = [
  '',
  '{"$":"undefined"}',
  '"ü 💶 \\u0000 \\" \\\\ \u2028 \'; DROP TABLE x; --"',
  `"${'x'.repeat(1_000_000)}"`,
];

export const ownerCases: readonly IdempotencyConformanceCase[] = [
  {
    name: 'gives the stored result to everybody, exactly as it was, up to a megabyte',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        for (const body of bodies) {
          const claim = claimOn(newId());
          await take(one, claim);
          assert.equal(await settle(one, claim, done(body)), 'settled');
          await assertDone(other, claim.id, body);
          const record = await read(other, claim.id);
          assert.equal(record?.result?.body, body);
        }
      }),
  },
  {
    name: 'keeps errors and omitted results apart from values',
    run: (harness) =>
      withStores(harness, async (one) => {
        for (const outcome of ['error', 'omitted', 'value'] as const) {
          for (const codec of ['other/2', 'typed-json/1', 'typed-json/1+encrypted']) {
            const claim = claimOn(newId());
            const result = { outcome, codec, body: '{}' };
            await take(one, claim);
            await settle(one, claim, { kind: 'done', result, keepMs: LONG_MS });
            assert.deepEqual(await ask(one, claimOn(claim.id)), { kind: 'done', result });
            assert.deepEqual((await read(one, claim.id))?.result, result);
          }
        }
      }),
  },
  {
    name: 'settles as done twice, since the first answer may have been lost, and then lets its owner do nothing else',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId());
        await take(one, claim);
        assert.equal(await settle(one, claim, done('1')), 'settled');
        assert.equal(await settle(other, claim, done('1')), 'settled');
        for (const ending of allEndings.slice(1)) assert.equal(await settle(one, claim, ending), 'refused');
        assert.equal(await renew(one, claim), 'lost');
        await assertDone(one, claim.id, '1');
      }),
  },
  {
    name: 'lets nobody but the owner renew or settle',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId());
        await take(one, claim);
        const before = await read(one, claim.id);
        const stranger = claimOn(claim.id, { leaseMs: 2 * LONG_MS });
        assert.equal(await renew(other, stranger), 'lost');
        for (const ending of allEndings) assert.equal(await settle(other, stranger, ending), 'refused');
        const after = await read(one, claim.id);
        assert.deepEqual([after?.state, after?.fence, after?.attempt], ['running', before?.fence, 1]);
        assert.ok((after?.leaseRemainingMs ?? 0) <= LONG_MS);
        assert.equal(await settle(one, claim, done('mine')), 'settled');
      }),
  },
  {
    name: 'lets a former owner change nothing once another has taken over',
    cases: ['C060', 'C011'],
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId());
        await take(one, claim);
        await settle(one, claim, lapsed(true));
        const successor = claimOn(claim.id);
        await take(other, successor);
        assert.equal(await renew(one, claim), 'lost');
        for (const ending of allEndings) assert.equal(await settle(one, claim, ending), 'refused');
        assert.equal(await stateOf(one, claim.id), 'running');
        assert.equal(await settle(other, successor, done('theirs')), 'settled');
        for (const ending of allEndings) assert.equal(await settle(one, claim, ending), 'refused');
        await assertDone(one, claim.id, 'theirs');
      }),
  },
  {
    name: 'lets an owner whose lease has ended renew and complete as long as nobody has taken over',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId(), { leaseMs: 50 });
        const late = claimOn(newId(), { leaseMs: 50 });
        await take(one, claim);
        await take(one, late);
        await pause(150);
        assert.equal(await stateOf(other, claim.id), 'lapsed');
        assert.equal(await renew(one, claim, LONG_MS), 'renewed');
        assert.equal((await ask(other, claimOn(claim.id))).kind, 'running');
        assert.equal(await settle(one, late, done('late')), 'settled');
        await assertDone(other, late.id, 'late');
      }),
  },
  {
    name: 'renews a lease for what the renewal asks for, and keeps the record beyond it',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId(), { leaseMs: BRIEF_MS, keepMs: BRIEF_MS });
        await take(one, claim);
        assert.equal(await renew(one, claim, LONG_MS), 'renewed');
        await pause(BRIEF_MS * 2 + 50);
        assert.equal((await ask(other, claimOn(claim.id))).kind, 'running');
        assert.equal(await renew(one, { ...claim, keepMs: LONG_MS }, 50), 'renewed');
        await pause(150);
        assert.equal(await stateOf(other, claim.id), 'lapsed');
      }),
  },
  {
    name: 'never makes a record by renewing or settling what is not there',
    run: (harness) =>
      withStores(harness, async (one) => {
        const claim = claimOn(newId());
        assert.equal(await renew(one, claim), 'lost');
        for (const ending of allEndings) assert.equal(await settle(one, claim, ending), 'refused');
        assert.equal(await read(one, claim.id), null);
      }),
  },
  {
    name: 'lets an owner give its record up at once, and then do nothing more',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId());
        await take(one, claim);
        assert.equal(await settle(one, claim, lapsed(true)), 'settled');
        assert.equal(await stateOf(other, claim.id), 'lapsed');
        assert.equal(await renew(one, claim), 'lost');
        for (const ending of allEndings) assert.equal(await settle(one, claim, ending), 'refused');
        const second = claimOn(claim.id);
        assert.equal((await take(other, second)).attempt, 2);
        assert.equal(await settle(other, second, lapsed(false)), 'settled');
        const third = claimOn(claim.id);
        assert.deepEqual(
          { ...(await take(one, third)), fence: 0 },
          { kind: 'claimed', fence: 0, attempt: 2, takenOver: true },
        );
        assert.equal(await settle(one, third, freed(true)), 'settled');
        assert.equal((await take(one, claimOn(claim.id))).takenOver, false);
      }),
  },
];
