/** What one acquisition attempt asks for. `key` is the qualified key: namespace and scope are already part of it. */
export interface Claim {
  readonly key: string;
  /** 128 random bits in hex, new for every attempt. Whoever knows it may renew and release this grant, nobody else. */
  readonly ownerId: string;
  readonly ttlMs: number;
}

/** The store's yes. */
export interface Grant {
  readonly kind: 'granted';
  /** Fencing token: a safe integer, larger than that of every earlier owner of the key in this store. */
  readonly token: number;
}

/** The store's no: somebody else holds the key. */
export interface Busy {
  readonly kind: 'busy';
  /** How long the present grant runs if it is not renewed, by the store's clock; null when the store cannot tell. */
  readonly retryAfterMs: number | null;
}

export interface ReleaseRequest {
  readonly key: string;
  readonly ownerId: string;
  /**
   * 0 frees the key at once. More keeps it taken for that long, without an owner: neither a late renewal nor a second
   * release of `ownerId` may touch it any more.
   */
  readonly keepForMs: number;
}

export type RenewalAnswer = 'renewed' | 'lost';
export type ReleaseAnswer = 'released' | 'not-owner';

/** Somebody who waits for a key, and wants to hear when it may be free. */
export interface KeyWatch {
  /** False while nothing would be heard, e.g. because the connection is down: the core then asks in short intervals. */
  readonly hears: boolean;
  /** Nothing is heard any more. Twice is harmless. */
  stop(): void;
}

/**
 * The port: what a place that keeps leases has to do. Waiting, renewal, deadlines and events are the core's.
 *
 * Rules, each proved by a case of the conformance suite:
 *
 * 1. Every call is one atomic step on the store's own clock. No client time crosses the wire.
 * 2. `tryAcquire` never waits for a holder. Sent twice with one owner id, it answers with the same token twice.
 * 3. `renew` and `release` look at the owner id, and a renewal never re-creates a grant that has ended.
 * 4. Tokens outlive grants: no release, expiry or restart of a client makes them fall.
 * 5. Three answers, not two: a rejection means *unknown*. The core then relies on its own deadline and, after an
 *    unanswered acquire, releases the owner id.
 * 6. `timeoutMs` is how long the core will listen. Stop working for it by then where the driver can be told to; a late
 *    answer is ignored.
 */
export interface LockStore {
  /** The kind of store, e.g. `redis`. Names it in errors, events and fence rows. */
  readonly kind: string;
  /** A shorter ttl is refused before anything is sent. May be known only once the store was opened. */
  readonly minTtlMs: number;
  /** A longer one is, too. Absent where there is no limit. */
  readonly maxTtlMs?: number;
  /** False where a key cannot stay taken after its session has ended; `minHoldMs` is then refused. */
  readonly keepsReleasedKeys: boolean;
  /**
   * How many leases go into one `renew`. Default 100; 1 where the leases lie on several servers, since one that is away
   * would leave the others' leases without an answer.
   */
  readonly renewsTogether?: number;
  /** Looks at the server once at boot and rejects with what to change. Absent where there is nothing to look at. */
  open?(): Promise<void>;
  tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy>;
  /** Answers in the order of `claims`. A rejection means that all of them are unknown. */
  renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]>;
  release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer>;
  /**
   * Calls `wake` whenever `key` may have become free, and once when it begins to hear; never before it returns. A hint:
   * the core then tries again, and now and then without it. Absent where the store cannot tell.
   */
  watch?(key: string, wake: () => void): KeyWatch;
  /** Closes only what the store itself opened. Twice is harmless. */
  close(): Promise<void>;
}
