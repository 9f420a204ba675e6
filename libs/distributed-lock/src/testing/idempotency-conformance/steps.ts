import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';

import type {
  ClaimAnswer,
  Claimed,
  IdempotencyStore,
  RecordClaim,
  RecordEnding,
  StoredRecord,
  StoredResult,
} from '../../idempotency/index.js';

import type { IdempotencyStoreHarness } from './conformance-case.js';

/** Longer than runners let a case go on, however slow the machine: what is to last for this long lasts throughout. */
export const LONG_MS = 600_000;
/** A lease that a case can wait for. */
export const SHORT_MS = 400;
/** How long a case listens for one answer. */
export const PATIENCE_MS = 30_000;
/** How late a store may notice what is due. What the machine adds is measured: see {@link takeWithin}. */
export const SLACK_MS = 1_500;
/** Steps that a store may need to do what is due, each as slow as the slowest that it is asked for meanwhile. */
const STEPS_BEHIND = 3;

/** As the service makes them. */
export function newId(): string {
  return randomBytes(32).toString('base64url');
}

/** A claim by an owner that nobody else is. */
export function claimOn(id: string, terms: Partial<RecordClaim> = {}): RecordClaim {
  const ownerId = randomBytes(16).toString('hex');
  const lasting = { leaseMs: LONG_MS, keepMs: LONG_MS, takeOver: true, maxAttempts: 5 };
  return { id, ownerId, fingerprint: '1:same', label: 'contract', ...lasting, ...terms };
}

export function resultOf(body: string): StoredResult {
  return { outcome: 'value', codec: 'typed-json/1', body };
}

export const done = (body: string, keepMs = LONG_MS): RecordEnding => ({
  kind: 'done',
  result: resultOf(body),
  keepMs,
});
export const freed = (countsAttempt: boolean): RecordEnding => ({
  kind: 'freed',
  countsAttempt,
  keepMs: LONG_MS,
});
export const lapsed = (countsAttempt: boolean): RecordEnding => ({ kind: 'lapsed', countsAttempt });
export const abandoned: RecordEnding = { kind: 'abandoned', keepMs: LONG_MS };
export const allEndings: readonly RecordEnding[] = [done('theirs'), freed(true), lapsed(true), abandoned];

export async function withStores(
  harness: IdempotencyStoreHarness,
  work: (one: IdempotencyStore, other: IdempotencyStore) => Promise<void>,
): Promise<void> {
  const stores = [await harness.connect(), await harness.connect()] as const;
  try {
    await work(...stores);
  } finally {
    await Promise.all(stores.map((store) => store.close()));
  }
}

export function ask(store: IdempotencyStore, claim: RecordClaim): Promise<ClaimAnswer> {
  return store.claim(claim, PATIENCE_MS);
}

/** Claims the record, which has to be possible. */
export async function take(store: IdempotencyStore, claim: RecordClaim): Promise<Claimed> {
  const answer = await ask(store, claim);
  assert.equal(answer.kind, 'claimed', `the record should be free, and is ${answer.kind}`);
  return answer;
}

/**
 * Keeps asking until the record can be claimed. The last claim may begin `limitMs` from now, and later by what a few of
 * the slowest claims take: that gives more time to a slow machine, and not to a store that never frees the record.
 */
export async function takeWithin(
  store: IdempotencyStore,
  claim: RecordClaim,
  limitMs: number,
): Promise<Claimed> {
  const startedAtMs = performance.now();
  let slowestMs = 0;
  for (;;) {
    const sentAtMs = performance.now();
    const answer = await ask(store, claim);
    if (answer.kind === 'claimed') return answer;
    assert.equal(answer.kind, 'running');
    await pause(5);
    slowestMs = Math.max(slowestMs, performance.now() - sentAtMs);
    const late = sentAtMs - startedAtMs > limitMs + STEPS_BEHIND * slowestMs;
    assert.ok(!late, 'the record should have been free by now');
  }
}

export function settle(
  store: IdempotencyStore,
  { id, ownerId }: RecordClaim,
  ending: RecordEnding,
): Promise<string> {
  return store.settle(id, ownerId, ending, PATIENCE_MS);
}

export function renew(store: IdempotencyStore, claim: RecordClaim, leaseMs = claim.leaseMs): Promise<string> {
  const { id, ownerId, keepMs } = claim;
  return store.renew({ id, ownerId, leaseMs, keepMs }, PATIENCE_MS);
}

export function read(store: IdempotencyStore, id: string): Promise<StoredRecord | null> {
  return store.read(id, PATIENCE_MS);
}

export async function stateOf(store: IdempotencyStore, id: string): Promise<string | undefined> {
  return (await read(store, id))?.state;
}

/** The record is done, and everybody is told `body`. */
export async function assertDone(store: IdempotencyStore, id: string, body: string): Promise<void> {
  assert.deepEqual(await ask(store, claimOn(id)), { kind: 'done', result: resultOf(body) });
}

export function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, durationMs));
}
