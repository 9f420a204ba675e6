import type { Attempt } from './attempt.js';
import type { Claimed } from './idempotency-store.js';
import type { RecordIdentity } from './record-identity.js';

/** An attempt whose claim is a part of its transaction: nobody can take it over before that has ended. */
export class InsideAttempt implements Attempt {
  readonly key: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly fence: number;
  readonly takenOver: boolean;
  readonly signal: AbortSignal = new AbortController().signal;

  constructor({ key, idempotencyKey }: RecordIdentity, { attempt, fence, takenOver }: Claimed) {
    this.key = key;
    this.idempotencyKey = idempotencyKey;
    this.attempt = attempt;
    this.fence = fence;
    this.takenOver = takenOver;
  }

  idempotencyKeyFor(label: string): string {
    return furtherKey(this.idempotencyKey, label);
  }

  assertOwned(): void {
    // There is no lease to lose: a transaction that has ended refuses the statements.
  }
}

export function furtherKey(idempotencyKey: string, label: string): string {
  return `${idempotencyKey}#${encodeURIComponent(label)}`;
}
