import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';

import type { IdempotencyStore } from '../../idempotency/index.js';
import { memoryIdempotencyStore } from '../../stores/memory/index.js';

import type { IdempotencyConformanceCase } from './conformance-case.js';
import {
  abandoned,
  claimOn,
  done,
  freed,
  lapsed,
  LONG_MS,
  newId,
  PATIENCE_MS,
  resultOf,
  withStores,
} from './steps.js';

const OWNERS = ['a', 'b', 'c'].map((owner) => owner.repeat(32));
const STEPS = 400;

/** One step on one record, the same on any store. */
type Step = (store: IdempotencyStore, id: string) => Promise<unknown>;

function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >>> 8) % below;
  };
}

function randomStep(below: (limit: number) => number): Step {
  const ownerId = OWNERS[below(OWNERS.length)] as string;
  const fingerprint = ['1:x', '1:x', '1:x', '1:y', '2:z', ''][below(6)] as string;
  const terms = { ownerId, fingerprint, takeOver: below(6) > 0, maxAttempts: 3 + below(3) };
  const endings = [
    done('"r"'),
    freed(true),
    freed(false),
    lapsed(true),
    lapsed(true),
    lapsed(false),
    abandoned,
  ];
  const ending = endings[below(endings.length)] ?? abandoned;
  const steps: readonly Step[] = [
    (store, id) => store.claim(claimOn(id, terms), PATIENCE_MS),
    (store, id) => store.claim(claimOn(id, terms), PATIENCE_MS),
    (store, id) => store.renew({ id, ownerId, leaseMs: LONG_MS, keepMs: LONG_MS }, PATIENCE_MS),
    (store, id) => store.settle(id, ownerId, ending, PATIENCE_MS),
    (store, id) => store.settle(id, ownerId, ending, PATIENCE_MS),
    below(4) === 0
      ? (store, id) => store.resolve(id, resultOf('"op"'), LONG_MS, PATIENCE_MS)
      : (store, id) => store.read(id, PATIENCE_MS),
    below(4) === 0
      ? (store, id) => store.forget(id, PATIENCE_MS)
      : (store, id) => store.read(id, PATIENCE_MS),
  ];
  return steps[below(steps.length)] as Step;
}

/** Answers without what is each store's own: its times and the height of its fences. */
function comparable(answer: unknown): unknown {
  if (typeof answer !== 'object' || answer === null) return answer;
  const hidden = ['fence', 'retryAfterMs', 'leaseRemainingMs', 'expiresInMs'];
  const entries = Object.entries(answer).map(([name, value]: [string, unknown]) => [
    name,
    hidden.includes(name) ? value !== null : value,
  ]);
  return Object.fromEntries(entries);
}

export const modelCases: readonly IdempotencyConformanceCase[] = [
  {
    name: 'answers random sequences of steps as the transition function does',
    run: (harness) =>
      withStores(harness, async (one, other) => {
        const seed = randomInt(2 ** 30);
        const below = seeded(seed);
        const model = memoryIdempotencyStore();
        const taken: string[] = [];
        let [id, fence] = [newId(), 0];
        for (let i = 0; i < STEPS; i += 1) {
          if (below(12) === 0) [id, fence] = [newId(), 0];
          const step = randomStep(below);
          const expected = await step(model, id);
          const answer = await step(below(2) ? one : other, id);
          taken.push(`${JSON.stringify(comparable(answer))}`);
          const trace = `seed ${seed}, step ${i}, after ${taken.slice(-4).join(' ')}`;
          assert.deepEqual(comparable(answer), comparable(expected), trace);
          const claimed = answer as { kind?: string; fence?: number } | null;
          if (claimed?.kind !== 'claimed' || claimed.fence === undefined) continue;
          assert.ok(claimed.fence >= fence, `fences should not fall: ${trace}`);
          fence = claimed.fence;
        }
      }),
  },
];
