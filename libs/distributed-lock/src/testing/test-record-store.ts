import type { Clock } from '../core/index.js';
import type {
  ClaimAnswer,
  IdempotencyStore,
  RecordClaim,
  RecordEnding,
  RecordRenewal,
  StoredRecord,
  StoredResult,
} from '../idempotency/index.js';
import { memoryIdempotencyStore } from '../stores/memory/index.js';

/** Records in memory that can be away for a while, and be forgotten all at once. */
export class TestRecordStore implements IdempotencyStore {
  readonly kind = 'memory';
  readonly minLeaseMs = 1;
  readonly purgesItself = true;
  #store: IdempotencyStore;
  #outages = 0;

  constructor(private readonly clock: Clock | undefined) {
    this.#store = memoryIdempotencyStore({ clock });
  }

  /** Returns the function that ends the outage. */
  fail(): () => void {
    this.#outages += 1;
    return () => void (this.#outages -= 1);
  }

  /** Calls that are under way find that their record is lost. */
  forgetAll(): void {
    this.#store = memoryIdempotencyStore({ clock: this.clock });
  }

  async claim(claim: RecordClaim, timeoutMs: number): Promise<ClaimAnswer> {
    return this.#present.claim(claim, timeoutMs);
  }

  async renew(renewal: RecordRenewal, timeoutMs: number): Promise<'renewed' | 'lost'> {
    return this.#present.renew(renewal, timeoutMs);
  }

  async settle(
    id: string,
    ownerId: string,
    ending: RecordEnding,
    timeoutMs: number,
  ): Promise<'settled' | 'refused'> {
    return this.#present.settle(id, ownerId, ending, timeoutMs);
  }

  async resolve(
    id: string,
    result: StoredResult,
    keepMs: number,
    timeoutMs: number,
  ): Promise<'resolved' | 'refused'> {
    return this.#present.resolve(id, result, keepMs, timeoutMs);
  }

  async forget(id: string, timeoutMs: number): Promise<'forgotten' | 'running' | 'absent'> {
    return this.#present.forget(id, timeoutMs);
  }

  async read(id: string, timeoutMs: number): Promise<StoredRecord | null> {
    return this.#present.read(id, timeoutMs);
  }

  async purge(limit: number, timeoutMs: number): Promise<number> {
    return this.#present.purge(limit, timeoutMs);
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  get #present(): IdempotencyStore {
    if (this.#outages > 0) throw new Error('LockTesting.unavailable() has taken the store away');
    return this.#store;
  }
}
