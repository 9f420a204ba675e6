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
  pause,
  read,
  settle,
  SHORT_MS,
  SLACK_MS,
  stateOf,
  take,
  takeWithin,
  withStores,
} from './steps.js';

export const claimCases: readonly IdempotencyConformanceCase[] = [
  {
    name: 'gives a fresh record to exactly one of 50 that ask together, and tells the others how long to wait',
    cases: ['C059'],
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const id = newId();
        const stores = Array.from({ length: 50 }, (_, i) => (i % 2 ? one : other));
        const answers = await Promise.all(stores.map((store) => ask(store, claimOn(id))));
        const [first, ...more] = answers.filter(({ kind }) => kind === 'claimed');
        assert.equal(more.length, 0);
        assert.deepEqual({ ...first, fence: 0 }, { kind: 'claimed', fence: 0, attempt: 1, takenOver: false });
        for (const answer of answers) {
          if (answer === first) continue;
          assert.equal(answer.kind, 'running');
          const { retryAfterMs } = answer;
          assert.ok(
            retryAfterMs !== null && retryAfterMs > LONG_MS / 2 && retryAfterMs <= LONG_MS,
            String(retryAfterMs),
          );
        }
      }),
  },
  {
    name: 'gives a lapsed record to exactly one of 50 that ask together, with a higher fence',
    cases: ['C010'],
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId());
        const { fence } = await take(one, claim);
        await settle(one, claim, lapsed(true));
        const stores = Array.from({ length: 50 }, (_, i) => (i % 2 ? one : other));
        const answers = await Promise.all(stores.map((store) => ask(store, claimOn(claim.id))));
        const [second, ...more] = answers.filter(({ kind }) => kind === 'claimed');
        assert.equal(more.length, 0);
        assert.ok(second?.kind === 'claimed' && second.fence > fence);
        assert.deepEqual({ ...second, fence: 0 }, { kind: 'claimed', fence: 0, attempt: 2, takenOver: true });
      }),
  },
  {
    name: 'answers a claim that is sent twice alike, also when it took over, and counts its lease anew',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId(), { leaseMs: LONG_MS / 4 });
        const first = await take(one, claim);
        assert.deepEqual(await take(other, { ...claim, leaseMs: LONG_MS }), first);
        const busy = await ask(one, claimOn(claim.id));
        assert.ok(busy.kind === 'running' && (busy.retryAfterMs ?? 0) > LONG_MS / 2);
        await settle(one, claim, lapsed(true));
        const successor = claimOn(claim.id);
        const second = await take(one, successor);
        assert.deepEqual(await take(one, successor), second);
        assert.equal(second.takenOver, true);
      }),
  },
  {
    name: 'lets nobody in before the lease has passed, and somebody soon after',
    cases: ['C010'],
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId(), { leaseMs: SHORT_MS });
        const sentAtMs = performance.now();
        const { fence } = await take(one, claim);
        const next = await takeWithin(other, claimOn(claim.id), SHORT_MS + SLACK_MS);
        assert.ok(performance.now() - sentAtMs >= SHORT_MS, 'it came too early');
        assert.ok(next.fence > fence && next.takenOver && next.attempt === 2);
      }),
  },
  {
    name: 'keeps a lapsed record for as long as asked, and no longer',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const kept = claimOn(newId(), { leaseMs: 50, keepMs: LONG_MS });
        const brief = claimOn(newId(), { leaseMs: 50, keepMs: 50 });
        await take(one, kept);
        await take(one, brief);
        await pause(250);
        assert.equal(await stateOf(other, kept.id), 'lapsed');
        assert.equal(await read(other, brief.id), null);
        assert.equal((await take(other, claimOn(brief.id))).takenOver, false);
      }),
  },
  {
    name: 'abandons a lapsed record that may not be taken over, for everybody and for good',
    cases: ['C026'],
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId());
        await take(one, claim);
        await settle(one, claim, lapsed(true));
        assert.deepEqual(await ask(other, claimOn(claim.id, { takeOver: false })), { kind: 'abandoned' });
        assert.deepEqual(await ask(one, claimOn(claim.id)), { kind: 'abandoned' });
        assert.equal(await stateOf(one, claim.id), 'abandoned');
      }),
  },
  {
    name: 'abandons a lapsed record that has begun as often as it may',
    run: (harness) =>
      withStores(harness, async (one) => {
        const id = newId();
        for (let attempt = 1; attempt <= 3; attempt += 1) {
          const claim = claimOn(id, { maxAttempts: 3 });
          assert.equal((await take(one, claim)).attempt, attempt);
          await settle(one, claim, lapsed(true));
        }
        assert.deepEqual(await ask(one, claimOn(id, { maxAttempts: 3 })), { kind: 'abandoned' });
      }),
  },
  {
    name: 'refuses another fingerprint in every state but absent, and does not take the record over for it',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId());
        const strange = (): Promise<unknown> => ask(other, claimOn(claim.id, { fingerprint: '1:other' }));
        await take(one, claim);
        assert.deepEqual(await strange(), { kind: 'mismatch' });
        await settle(one, claim, lapsed(true));
        assert.deepEqual(await strange(), { kind: 'mismatch' });
        assert.equal(await stateOf(one, claim.id), 'lapsed');
        const second = claimOn(claim.id);
        await take(one, second);
        await settle(one, second, done('1'));
        assert.deepEqual(await strange(), { kind: 'mismatch' });
        const gone = claimOn(newId());
        await take(one, gone);
        await settle(one, gone, abandoned);
        assert.deepEqual(await ask(other, claimOn(gone.id, { fingerprint: '1:other' })), {
          kind: 'mismatch',
        });
      }),
  },
  {
    name: 'compares fingerprints as a whole, whatever they are made of',
    run: (harness) =>
      withStores(harness, async (one) => {
        const fingerprints = ['1:a', '1:a b', '1:a b ', '1:a%20b', '1:%', '1:"', "1:'", '1:a\nb'];
        for (const fingerprint of fingerprints) {
          const claim = claimOn(newId(), { fingerprint });
          await take(one, claim);
          await settle(one, claim, done('1'));
          for (const other of fingerprints) {
            const { kind } = await ask(one, claimOn(claim.id, { fingerprint: other }));
            assert.equal(kind, other === fingerprint ? 'done' : 'mismatch', `${fingerprint} and ${other}`);
          }
          assert.equal((await read(one, claim.id))?.fingerprint, fingerprint);
        }
      }),
  },
  {
    name: 'takes fingerprints of another algorithm, or none, for the same request',
    run: (harness) =>
      withStores(harness, async (one) => {
        const claim = claimOn(newId());
        await take(one, claim);
        await settle(one, claim, done('1'));
        for (const fingerprint of ['', '2:other', '1:same']) {
          assert.equal((await ask(one, claimOn(claim.id, { fingerprint }))).kind, 'done');
        }
      }),
  },
  {
    name: 'begins anew after a record was freed, with any fingerprint, and counts only the attempts that count',
    cases: ['C088'],
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const id = newId();
        const counts = [true, true, false, true];
        const attempts: number[] = [];
        const fences: number[] = [];
        for (const [i, countsAttempt] of counts.entries()) {
          const claim = claimOn(id, { fingerprint: `1:${i}` });
          const { attempt, fence, takenOver } = await take(one, claim);
          assert.equal(takenOver, false);
          attempts.push(attempt);
          fences.push(fence);
          await settle(one, claim, freed(countsAttempt));
          assert.equal(await stateOf(other, id), 'absent');
        }
        assert.deepEqual(attempts, [1, 2, 3, 3]);
        assert.deepEqual(
          fences,
          [...fences].sort((a, b) => a - b),
        );
      }),
  },
  {
    name: 'forgets a first attempt that does not count',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const claim = claimOn(newId());
        await take(one, claim);
        assert.equal(await settle(one, claim, freed(false)), 'settled');
        assert.equal(await read(other, claim.id), null);
        assert.equal((await take(other, claimOn(claim.id))).attempt, 1);
      }),
  },
  {
    name: 'tells ids apart that differ in case only',
    run: (harness) =>
      withStores(harness, async (one) => {
        const id = `aB${newId().slice(2)}`;
        const swapped = `Ab${id.slice(2)}`;
        const claim = claimOn(id);
        await take(one, claim);
        await settle(one, claim, done('"lower"'));
        await take(one, claimOn(swapped));
        await assertDone(one, id, '"lower"');
      }),
  },
];
