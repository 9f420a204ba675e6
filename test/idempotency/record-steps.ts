import { randomBytes } from 'node:crypto';

import type {
  ClaimAnswer,
  Claimed,
  IdempotencyStore,
  RecordClaim,
  RecordEnding,
  StoredResult,
} from 'nestjs-distributed-lock';

/** Far longer than any test runs. */
export const LONG_MS = 60_000;
/** How long a test listens for one answer. */
export const PATIENCE_MS = 10_000;

/** As the service makes them. */
export function newId(): string {
  return randomBytes(32).toString('base64url');
}

/** A claim by an owner that nobody else is. */
export function claimOn(id: string, terms: Partial<RecordClaim> = {}): RecordClaim {
  const ownerId = randomBytes(16).toString('hex');
  const lasting = { leaseMs: LONG_MS, keepMs: LONG_MS, takeOver: true, maxAttempts: 5 };
  return { id, ownerId, fingerprint: '1:same', label: 'test', ...lasting, ...terms };
}

export function done(body: string, keepMs = LONG_MS): RecordEnding {
  return { kind: 'done', result: resultOf(body), keepMs };
}

function resultOf(body: string): StoredResult {
  return { outcome: 'value', codec: 'typed-json/1', body };
}

export function freed(countsAttempt: boolean): RecordEnding {
  return { kind: 'freed', countsAttempt, keepMs: LONG_MS };
}

export function lapsed(countsAttempt: boolean): RecordEnding {
  return { kind: 'lapsed', countsAttempt };
}

export function ask(store: IdempotencyStore, claim: RecordClaim): Promise<ClaimAnswer> {
  return store.claim(claim, PATIENCE_MS);
}

/** Claims the record, which has to be possible. */
export async function take(store: IdempotencyStore, claim: RecordClaim): Promise<Claimed> {
  const answer = await ask(store, claim);
  if (answer.kind === 'claimed') return answer;
  throw new Error(`the record should be free, and is ${answer.kind}`);
}

export function settle(
  store: IdempotencyStore,
  { id, ownerId }: RecordClaim,
  ending: RecordEnding,
): Promise<string> {
  return store.settle(id, ownerId, ending, PATIENCE_MS);
}

export async function stateOf(store: IdempotencyStore, id: string): Promise<string | undefined> {
  return (await store.read(id, PATIENCE_MS))?.state;
}

/** The record is done, and everybody is told `body`. */
export async function assertDone(store: IdempotencyStore, id: string, body: string): Promise<void> {
  expect(await ask(store, claimOn(id))).toEqual({ kind: 'done', result: resultOf(body) });
}
