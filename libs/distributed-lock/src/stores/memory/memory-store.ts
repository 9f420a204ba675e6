import {
  systemClock,
  type Busy,
  type Claim,
  type Clock,
  type Grant,
  type LockStore,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewalAnswer,
} from '../../core/index.js';

interface Held {
  readonly token: number;
  /** Null once it was released with `keepForMs`: taken, and nobody's. */
  readonly ownerId: string | null;
  readonly endsAtMs: number;
}

export interface MemoryStoreOptions {
  /** Replaces both clocks, for tests. */
  readonly clock?: Clock;
}

/**
 * Locks of this one process: exact, and gone with it. For tests, and for applications with a single replica.
 *
 * Tokens are taken from the wall clock in microseconds and never repeat or fall while the process lives, so that they
 * also outlive a restart beside a durable fence, as long as the clock was not set back by more than the downtime.
 */
export function memoryStore(options: MemoryStoreOptions = {}): LockStore {
  return new MemoryStore(options.clock ?? systemClock);
}

const SMALLEST_SWEEP = 1_000;

class MemoryStore implements LockStore {
  readonly kind = 'memory';
  readonly minTtlMs = 1;
  readonly keepsReleasedKeys = true;
  readonly #held = new Map<string, Held>();
  /** One counter for all keys: larger than the last token of each, without remembering each. */
  #lastToken = 0;
  #sweepAtSize = SMALLEST_SWEEP;

  constructor(private readonly clock: Clock) {}

  tryAcquire({ key, ownerId, ttlMs }: Claim): Promise<Grant | Busy> {
    const nowMs = this.clock.monotonicMs();
    const present = this.#present(key, nowMs);
    if (present && present.ownerId !== ownerId) {
      return Promise.resolve({ kind: 'busy', retryAfterMs: present.endsAtMs - nowMs });
    }
    this.#sweepWhenGrown(nowMs);
    const token = present?.token ?? this.#nextToken();
    this.#held.set(key, { ownerId, token, endsAtMs: nowMs + ttlMs });
    return Promise.resolve({ kind: 'granted', token });
  }

  renew(claims: readonly Claim[]): Promise<readonly RenewalAnswer[]> {
    return Promise.resolve(claims.map((claim) => this.#renewOne(claim)));
  }

  release({ key, ownerId, keepForMs }: ReleaseRequest): Promise<ReleaseAnswer> {
    const nowMs = this.clock.monotonicMs();
    const present = this.#present(key, nowMs);
    if (present?.ownerId !== ownerId) return Promise.resolve('not-owner');
    if (keepForMs > 0) this.#held.set(key, { ...present, ownerId: null, endsAtMs: nowMs + keepForMs });
    else this.#held.delete(key);
    return Promise.resolve('released');
  }

  /** Ends nothing: two applications may share the store, and what is kept for a minimum hold outlives both. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  #renewOne({ key, ownerId, ttlMs }: Claim): RenewalAnswer {
    const nowMs = this.clock.monotonicMs();
    const present = this.#present(key, nowMs);
    if (present?.ownerId !== ownerId) return 'lost';
    this.#held.set(key, { ...present, endsAtMs: nowMs + ttlMs });
    return 'renewed';
  }

  #present(key: string, nowMs: number): Held | undefined {
    const held = this.#held.get(key);
    if (!held || held.endsAtMs > nowMs) return held;
    this.#held.delete(key);
    return undefined;
  }

  /** Keys that were kept after their release, and then never asked for again, would pile up. */
  #sweepWhenGrown(nowMs: number): void {
    if (this.#held.size < this.#sweepAtSize) return;
    for (const key of this.#held.keys()) this.#present(key, nowMs);
    this.#sweepAtSize = Math.max(SMALLEST_SWEEP, this.#held.size * 2);
  }

  #nextToken(): number {
    this.#lastToken = Math.max(this.#lastToken + 1, Math.floor(this.clock.wallMs() * 1_000));
    return this.#lastToken;
  }
}
