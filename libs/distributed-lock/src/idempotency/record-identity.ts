import { hash } from 'node:crypto';

import { labelledKey, type KeyInput, type KeyScope } from '../core/index.js';

/** What makes two calls one: the same operation for the same caller under the same key. */
export interface IdempotentCall {
  /** The user's key, e.g. `'payout:42'` or `PayoutKey({ id: 42 })`; or the key that a client sent. */
  readonly key: KeyInput;
  /**
   * A stable name of what is done, e.g. `'payments.create'`, for keys that do not say it themselves. Renaming it forgets
   * what was done before.
   */
  readonly operation?: string;
  /** Whoever may see the answer, e.g. a user's id: nobody else's call is ever answered with it. */
  readonly caller?: string;
  /** `'global'` leaves the configured tenant out, for work that belongs to none. */
  readonly scope?: 'global';
}

export interface RecordIdentity {
  readonly id: string;
  readonly key: string;
  /** For events and metrics, and for people who look at the store: it holds no values. */
  readonly label: string;
  /** What the body passes on to others: the same in every attempt. */
  readonly idempotencyKey: string;
}

/** Payment providers take 255 characters; the rest is for labels. */
const LONGEST_READABLE = 200;

/** @throws {LockKeyInvalidError} the key is empty or too long, or a tenant is configured and gave nothing */
export function identify(call: IdempotentCall, scope: KeyScope): RecordIdentity {
  const { key, template } = labelledKey(call.key);
  const { operation, caller } = call;
  const qualified = scope.qualify(key, call.scope);
  // JSON keeps the parts apart: no text in one of them can imitate another.
  const parts = `[${[qualified, operation ?? null, caller ?? null].map(text).join()}]`;
  const id = hash('sha256', parts, 'base64url');
  // A client's own key may be personal data, and repeats from caller to caller: what goes out instead is the digest.
  const readable = operation === undefined && caller === undefined && qualified.length <= LONGEST_READABLE;
  return { id, key, label: operation ?? template, idempotencyKey: readable ? qualified : id };
}

/** Each by itself: for one long text JSON.stringify() is several times as fast as for a list of it. */
function text(part: string | null): string {
  return JSON.stringify(part);
}
