import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';

import type { Busy, Claim, Grant, LockStore } from '../../core/index.js';
import type { LockStoreHarness } from './conformance-case.js';

/** Longer than any case runs, and no longer than any place keeps a lease: what is taken for it is taken throughout. */
export const LONG_MS = 120_000;
/** How long a case listens for one answer. */
export const PATIENCE_MS = 30_000;
/** How late a place may notice what is due. What the machine adds is measured: see {@link takeWithin}. */
export const SLACK_MS = 1_000;
/** Steps that a place may need to do what is due, each as slow as the slowest that it is asked for meanwhile. */
export const STEPS_BEHIND = 3;

export function newKey(): string {
  return `conformance:${randomBytes(8).toString('hex')}`;
}

/** A claim by an owner that nobody else is. */
export function claimOn(key: string, ttlMs = LONG_MS): Claim {
  return { key, ttlMs, ownerId: randomBytes(16).toString('hex') };
}

/** A ttl that a case can wait for. */
export function shortTtlMs(store: LockStore): number {
  return Math.max(store.minTtlMs * 2, 400);
}

/** A ttl that a holder can keep on a machine that stands still for a second now and then. */
export function roomyTtlMs(store: LockStore): number {
  return Math.max(shortTtlMs(store), 3_000);
}

export async function withStores<Count extends 1 | 2 | 4>(
  harness: LockStoreHarness,
  count: Count,
  work: (...stores: Stores[Count]) => Promise<void>,
): Promise<void> {
  const stores: LockStore[] = [];
  try {
    while (stores.length < count) stores.push(await harness.connect());
    await work(...(stores as Stores[Count]));
  } finally {
    await Promise.all(stores.map((store) => store.close()));
  }
}

interface Stores {
  1: [LockStore];
  2: [LockStore, LockStore];
  4: [LockStore, LockStore, LockStore, LockStore];
}

export function tryFor(store: LockStore, claim: Claim): Promise<Grant | Busy> {
  return store.tryAcquire(claim, PATIENCE_MS);
}

/** Takes the key, which has to be free, and gives the token. */
export async function take(store: LockStore, claim: Claim): Promise<number> {
  const answer = await tryFor(store, claim);
  assert.equal(answer.kind, 'granted', `"${claim.key}" should be free`);
  return answer.token;
}

/** Asks for the key, which has to be taken by somebody else, and gives the remaining time that the store tells. */
export async function findTaken(store: LockStore, key: string): Promise<number | null> {
  const answer = await tryFor(store, claimOn(key));
  assert.equal(answer.kind, 'busy', `"${key}" should be taken`);
  return answer.retryAfterMs;
}

/** The key is free for others: takes it and gives it back. */
export async function findFree(harness: LockStoreHarness, store: LockStore, key: string): Promise<void> {
  if (harness.peek)
    assert.equal(await harness.peek(key), 'free', `"${key}" should be free in the store itself`);
  const claim = claimOn(key);
  await take(store, claim);
  assert.equal(await giveBack(store, claim), 'released');
}

export function giveBack(store: LockStore, { key, ownerId }: Claim, keepForMs = 0): Promise<string> {
  return store.release({ key, ownerId, keepForMs }, PATIENCE_MS);
}

export async function renewOne(store: LockStore, claim: Claim): Promise<string | undefined> {
  const answers = await store.renew([claim], PATIENCE_MS);
  assert.equal(answers.length, 1);
  return answers[0];
}

/**
 * Keeps asking for the key until it is granted. The last try may begin `limitMs` from now, and later by what a few of
 * the slowest tries take: that gives more time to a slow machine, and not to a store that never frees the key.
 */
export async function takeWithin(
  store: LockStore,
  key: string,
  limitMs: number,
): Promise<{ claim: Claim; token: number }> {
  const startedAtMs = performance.now();
  let slowestMs = 0;
  for (;;) {
    const sentAtMs = performance.now();
    const claim = claimOn(key);
    const answer = await tryFor(store, claim);
    if (answer.kind === 'granted') return { claim, token: answer.token };
    const waitedMs = sentAtMs - startedAtMs;
    await pause(5);
    slowestMs = Math.max(slowestMs, performance.now() - sentAtMs);
    const late = waitedMs > limitMs + STEPS_BEHIND * slowestMs;
    assert.ok(!late, `"${key}" is still taken after ${Math.round(waitedMs)} ms`);
  }
}

/** Waits until the ttl of a grant has passed, and what its place may add to it. */
export function pauseBeyond(harness: LockStoreHarness, { ttlMs }: Claim): Promise<void> {
  return pause(ttlMs + 50 + (harness.endsLateByMs ?? 0));
}

/** Waits until a grant that nobody renews has ended: where the place can be looked into, until it has ended there. */
export async function outlive(harness: LockStoreHarness, claim: Claim): Promise<void> {
  await pauseBeyond(harness, claim);
  const giveUpAtMs = performance.now() + PATIENCE_MS;
  while (harness.peek && (await harness.peek(claim.key)) === 'taken') {
    assert.ok(performance.now() < giveUpAtMs, `"${claim.key}" stays taken`);
    await pause(10);
  }
}

export function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, durationMs));
}

export function assertRising(tokens: readonly number[]): void {
  const fell = tokens.findIndex((token, i) => i > 0 && token <= (tokens[i - 1] as number));
  assert.equal(fell, -1, `tokens should rise with each owner: ${tokens.join(', ')}`);
}

/** Checks the remaining time of a busy answer where the store tells one, and that it tells none where it cannot. */
export function assertRemaining(
  harness: LockStoreHarness,
  remainingMs: number | null,
  limits: { readonly moreThan: number; readonly atMost: number },
): void {
  if (!harness.tellsRemainingTime) return assert.equal(remainingMs, null);
  assert.ok(
    remainingMs !== null && remainingMs > limits.moreThan && remainingMs <= limits.atMost,
    `${remainingMs} ms remaining should be more than ${limits.moreThan} and at most ${limits.atMost}`,
  );
}
