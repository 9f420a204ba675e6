import type {
  Busy,
  Claim,
  Clock,
  Grant,
  LockStore,
  ReleaseAnswer,
  ReleaseRequest,
  RenewalAnswer,
} from '../core/index.js';
import { memoryStore } from '../stores/memory/index.js';

/** A memory store that can be made to fail, and remembers the tokens that it gave. */
export class TestStore implements LockStore {
  readonly kind = 'memory';
  readonly minTtlMs = 1;
  readonly keepsReleasedKeys = true;
  readonly #store: LockStore;
  readonly #lastTokens = new Map<string, number>();
  #outages = 0;

  constructor(clock?: Clock) {
    this.#store = memoryStore({ clock });
  }

  /** By qualified key; undefined when the key was never granted. */
  lastToken(qualifiedKey: string): number | undefined {
    return this.#lastTokens.get(qualifiedKey);
  }

  forgetTokens(): void {
    this.#lastTokens.clear();
  }

  /** Returns the function that ends the outage. */
  fail(): () => void {
    this.#outages += 1;
    return () => void (this.#outages -= 1);
  }

  async tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    this.#refuseWhileAway();
    const answer = await this.#store.tryAcquire(claim, timeoutMs);
    if (answer.kind === 'granted') this.#lastTokens.set(claim.key, answer.token);
    return answer;
  }

  async renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    this.#refuseWhileAway();
    return this.#store.renew(claims, timeoutMs);
  }

  async release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    this.#refuseWhileAway();
    return this.#store.release(request, timeoutMs);
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  #refuseWhileAway(): void {
    if (this.#outages > 0) throw new Error('LockTesting.unavailable() has taken the store away');
  }
}
