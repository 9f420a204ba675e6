import {
  labelledKey,
  LockService,
  type KeyInput,
  type Lease,
  type LockServiceOptions,
  type LossReason,
} from '../core/index.js';
import type { IdempotencyService } from '../idempotency/index.js';
import { TestRecordStore } from './test-record-store.js';
import { TestStore } from './test-store.js';

export interface LockTestingOptions extends Omit<LockServiceOptions, 'stores' | 'events'> {
  /** Names of further stores, each in memory. */
  readonly stores?: readonly string[];
}

/** Which of several, when a name or a scope was used to lock. */
export interface TestKeyOptions {
  readonly store?: string;
  readonly scope?: 'global';
}

/** The stores of one test, the services that lock in them, and somebody else who does. */
export class TestBench {
  readonly stores: Readonly<Record<string, TestStore>>;
  /** Of idempotent calls. */
  readonly records: TestRecordStore;
  /** Stands for another process. */
  readonly #elsewhere: LockService;
  readonly #heldElsewhere = new Set<Lease>();
  readonly #leases = new Set<Lease>();
  #idempotency: IdempotencyService | undefined;

  constructor(options: LockTestingOptions) {
    const names = ['default', ...(options.stores ?? [])];
    this.stores = Object.fromEntries(names.map((name) => [name, new TestStore(options.clock)]));
    this.records = new TestRecordStore(options.clock);
    this.#elsewhere = new LockService({ ...options, stores: this.stores });
  }

  /** Notes every lease that `locks` takes from now on, and whatever `idempotency` has under way. */
  watch(locks: LockService, idempotency: IdempotencyService | undefined): void {
    this.#idempotency = idempotency;
    locks.fences.add({
      beforeAcquire: () => undefined,
      raise: (lease) => {
        for (const known of this.#leases) if (known.state.kind === 'released') this.#leases.delete(known);
        this.#leases.add(lease);
        return Promise.resolve();
      },
    });
  }

  async holdElsewhere(key: KeyInput, options: TestKeyOptions): Promise<() => Promise<void>> {
    const lease = await this.#elsewhere.acquire(key, { ...options, waitMs: 0 });
    this.#heldElsewhere.add(lease);
    return async () => {
      this.#heldElsewhere.delete(lease);
      await lease.release();
    };
  }

  heldLease(key: KeyInput, options: TestKeyOptions): Lease | undefined {
    const qualifiedKey = this.#qualify(key, options);
    const store = options.store ?? 'default';
    return this.heldLeases().find((lease) => lease.qualifiedKey === qualifiedKey && lease.store === store);
  }

  heldLeases(): Lease[] {
    return [...this.#leases].filter(({ state }) => state.kind !== 'released' && state.kind !== 'lease-lost');
  }

  /** The keys of idempotent calls that are under way. */
  runningCalls(): readonly string[] {
    return this.#idempotency?.runningKeys ?? [];
  }

  describeHeld(): string {
    const held = this.heldLeases().map((lease) => `"${lease.key}" (for ${Math.round(lease.heldMs)} ms)`);
    return `Held: ${held.join(', ') || 'nothing'}.`;
  }

  lastToken(key: KeyInput, options: TestKeyOptions): number | undefined {
    return this.stores[options.store ?? 'default']?.lastToken(this.#qualify(key, options));
  }

  /** Nothing is held any more, here or elsewhere, and neither a token nor a record is remembered. */
  async reset(): Promise<void> {
    const elsewhere = [...this.#heldElsewhere];
    this.#heldElsewhere.clear();
    for (const lease of this.heldLeases()) await this.lose(lease, 'session-ended');
    await Promise.all(elsewhere.map((lease) => lease.release()));
    for (const store of Object.values(this.stores)) store.forgetTokens();
    this.records.forgetAll();
  }

  /** The holder learns at once, and the store gives the key to others. */
  async lose(lease: Lease, reason: LossReason): Promise<void> {
    lease.lose(reason);
    const request = { key: lease.qualifiedKey, ownerId: lease.ownerId, keepForMs: 0 };
    await lease.lockStore.release(request, 1_000);
  }

  #qualify(key: KeyInput, { scope }: TestKeyOptions): string {
    return this.#elsewhere.qualify(labelledKey(key).key, scope);
  }
}
