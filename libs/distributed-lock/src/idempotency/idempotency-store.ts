import type { IsolationLevel } from './transactional-options.js';

/** How a body ended, as it is kept for later callers. `body` is text without NUL characters. */
export interface StoredResult {
  /** `omitted`: the body finished, and what it returned could not be kept. */
  readonly outcome: 'value' | 'error' | 'omitted';
  /** Who can read `body`, with its version. */
  readonly codec: string;
  readonly body: string;
}

/** What one call asks for. */
export interface RecordClaim {
  /** 43 characters of base64url: a digest of namespace, tenant, operation, caller and key. */
  readonly id: string;
  /** 128 random bits in hex, new for every call. Whoever knows it may renew and settle this claim, nobody else. */
  readonly ownerId: string;
  /** Digest of what the caller sent. See {@link sameRequest}. */
  readonly fingerprint: string;
  readonly leaseMs: number;
  /** How long the record is kept beyond the lease's end, while nobody knows how the body ended. */
  readonly keepMs: number;
  /** False turns a lapsed record into an abandoned one instead of running it again. */
  readonly takeOver: boolean;
  /** A lapsed record that has begun this often is abandoned as well. */
  readonly maxAttempts: number;
  /** For people who look at the store; never the key, which may be personal. */
  readonly label: string;
}

/** The store's yes: the caller owns the record. */
export interface Claimed {
  readonly kind: 'claimed';
  /** Safe integer, larger than that of every earlier owner of the record. */
  readonly fence: number;
  /** 1 for the first. */
  readonly attempt: number;
  /** True when the last owner's lease ended before it had settled: nobody knows how far its body came. */
  readonly takenOver: boolean;
}

export type ClaimAnswer =
  | Claimed
  /** Somebody else is at work; `retryAfterMs` is how long that lease runs if it is not renewed. */
  | { readonly kind: 'running'; readonly retryAfterMs: number | null }
  | { readonly kind: 'done'; readonly result: StoredResult }
  | { readonly kind: 'abandoned' }
  /** The record belongs to another request, whatever its state. */
  | { readonly kind: 'mismatch' };

export interface RecordRenewal {
  readonly id: string;
  readonly ownerId: string;
  readonly leaseMs: number;
  readonly keepMs: number;
}

/** How an owner leaves its record. */
export type RecordEnding =
  | { readonly kind: 'done'; readonly result: StoredResult; readonly keepMs: number }
  /** Nothing is to be replayed: the next call begins anew, with whatever it sends. Only the attempts are remembered. */
  | { readonly kind: 'freed'; readonly countsAttempt: boolean; readonly keepMs: number }
  /** Nobody knows how the body ended: the next call decides as after a crash, and need not wait for the lease. */
  | { readonly kind: 'lapsed'; readonly countsAttempt: boolean }
  | { readonly kind: 'abandoned'; readonly keepMs: number };

/** A record as it is at this moment. */
export interface StoredRecord {
  /** `absent`: nothing to replay and nobody at work, but earlier attempts failed and are counted. */
  readonly state: 'absent' | 'running' | 'lapsed' | 'done' | 'abandoned';
  readonly attempt: number;
  readonly fence: number;
  readonly fingerprint: string;
  readonly label: string;
  /** Null unless running. */
  readonly leaseRemainingMs: number | null;
  /** Until the record is forgotten. */
  readonly expiresInMs: number;
  /** Null unless done. */
  readonly result: StoredResult | null;
}

/** A record as its owner hands it over to the transaction that completes it. */
export interface OwnedClaim {
  readonly id: string;
  readonly ownerId: string;
  /** For this long nobody else may take the record, if it is not renewed. */
  readonly remainingMs: number;
  /** For a transaction whose snapshot turns out to be older than any renewal: see `renewable`. */
  stopRenewing(): void;
}

/** A store whose records lie in the database that bodies write to, so that effects and completion commit together or not. */
export interface RecordTransactions {
  /**
   * Before anything is claimed.
   *
   * @throws {LockInsideTransactionError} a transaction is open in this call chain, on which the effects would depend
   * @throws {LockConfigInvalidError} the database cannot be used for this; says what to write
   */
  requireReady(key: string): void;
  /** Whether the record can be renewed while such a transaction is open, and still be completed by it. */
  renewable(isolation: IsolationLevel | undefined): boolean;
  /**
   * Runs `work` in a transaction whose last statement settles the record in the way that `work` resolves to. `'refused'`:
   * somebody has taken over, and the transaction was rolled back.
   */
  settleWithin(
    owned: OwnedClaim,
    isolation: IsolationLevel | undefined,
    work: () => Promise<RecordEnding>,
  ): Promise<'settled' | 'refused'>;
  /** As `settleWithin`, with the claim as the first statement; `work` runs only if that is granted. */
  claimWithin(
    claim: RecordClaim,
    isolation: IsolationLevel | undefined,
    work: (claimed: Claimed) => Promise<RecordEnding>,
  ): Promise<ClaimAnswer>;
}

/**
 * The port: what a place that keeps idempotency records has to do. Waiting, heartbeats, codecs and events are written once,
 * above it.
 *
 * Rules, each proved by a case of the contract suite:
 *
 * 1. Every call is one atomic step on the store's own clock. No client time crosses the wire.
 * 2. `claim` never waits. Sent twice with one owner id, it answers with the same fence and attempt twice.
 * 3. `renew` and `settle` look at the owner id. Nothing that a former owner sends changes its successor's record; an owner
 *    whose lease has ended may still do both as long as nobody has taken over.
 * 4. `settle` as done, sent twice, is settled twice: the first answer may have been lost.
 * 5. Fences outlive records: no expiry, purge or `forget` makes them fall.
 * 6. Expiry is logical: an expired record is absent to every call, whether or not it is still stored.
 * 7. A rejection means *unknown*. `timeoutMs` is how long anybody will listen.
 */
export interface IdempotencyStore {
  /** The kind of store, e.g. `redis`. Names it in errors. */
  readonly kind: string;
  /** A shorter lease is refused before anything is sent. */
  readonly minLeaseMs: number;
  /** Expired records give their place back without a purge. */
  readonly purgesItself?: true;
  /** Absent where records and effects do not lie in one database. */
  readonly transactions?: RecordTransactions;
  /** Looks at the server once at boot and rejects with what to change. Absent where there is nothing to look at. */
  open?(): Promise<void>;
  claim(claim: RecordClaim, timeoutMs: number): Promise<ClaimAnswer>;
  renew(renewal: RecordRenewal, timeoutMs: number): Promise<'renewed' | 'lost'>;
  settle(
    id: string,
    ownerId: string,
    ending: RecordEnding,
    timeoutMs: number,
  ): Promise<'settled' | 'refused'>;
  /** An operator says how a lapsed or abandoned record ended. */
  resolve(
    id: string,
    result: StoredResult,
    keepMs: number,
    timeoutMs: number,
  ): Promise<'resolved' | 'refused'>;
  /** Removes the record, unless somebody is at work on it. */
  forget(id: string, timeoutMs: number): Promise<'forgotten' | 'running' | 'absent'>;
  /** Null for a record that is absent and has no failed attempts. Changes nothing, and keeps nobody waiting. */
  read(id: string, timeoutMs: number): Promise<StoredRecord | null>;
  /** Deletes up to `limit` expired records, oldest first, and says how many; 0 where the store does it by itself. */
  purge(limit: number, timeoutMs: number): Promise<number>;
  /** Closes only what the store itself opened. Twice is harmless. */
  close(): Promise<void>;
}
