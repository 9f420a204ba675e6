import type {
  Busy,
  Claim,
  Clock,
  Grant,
  LockStore,
  ReleaseAnswer,
  ReleaseRequest,
  RenewalAnswer,
} from '../src/core/index.js';
import { memoryStore } from '../src/stores/memory/index.js';

/** Stands in for one command of the store: `forward` does what a healthy store would do. */
type Script<Asked, Answer> = (asked: Asked, forward: () => Promise<Answer>) => unknown;

/** A store that does as a test says, otherwise as a healthy one, and remembers what it was asked. */
export class ScriptedStore implements LockStore {
  readonly kind = 'scripted';
  readonly minTtlMs = 1;
  readonly keepsReleasedKeys: boolean = true;
  readonly acquires: Claim[] = [];
  readonly renewals: { readonly claims: readonly Claim[]; readonly atMs: number }[] = [];
  readonly releases: ReleaseRequest[] = [];
  closed = 0;
  onAcquire: Script<Claim, Grant | Busy> = (_, forward) => forward();
  onRenew: Script<readonly Claim[], readonly RenewalAnswer[]> = (_, forward) => forward();
  onRelease: Script<ReleaseRequest, ReleaseAnswer> = (_, forward) => forward();
  onClose: () => Promise<void> = () => Promise.resolve();
  readonly #healthy: LockStore;
  readonly #owners = new Map<string, string>();

  constructor(private readonly clock: Clock) {
    this.#healthy = memoryStore({ clock });
  }

  tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    this.acquires.push(claim);
    return this.onAcquire(claim, () => this.#acquire(claim, timeoutMs)) as Promise<Grant | Busy>;
  }

  renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    this.renewals.push({ claims, atMs: this.clock.monotonicMs() });
    const forward = (): Promise<readonly RenewalAnswer[]> => this.#healthy.renew(claims, timeoutMs);
    return this.onRenew(claims, forward) as Promise<readonly RenewalAnswer[]>;
  }

  release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    this.releases.push(request);
    const forward = (): Promise<ReleaseAnswer> => this.#healthy.release(request, timeoutMs);
    return this.onRelease(request, forward) as Promise<ReleaseAnswer>;
  }

  close(): Promise<void> {
    this.closed += 1;
    return this.onClose();
  }

  /** Frees the key behind its owner's back, as an operator or an eviction would. */
  async drop(key: string): Promise<void> {
    await this.#healthy.release({ key, ownerId: this.#owners.get(key) ?? '', keepForMs: 0 }, 1_000);
  }

  /** Gives the key to somebody else, whoever holds it. */
  async giveToAnother(key: string, ttlMs = 3_600_000): Promise<void> {
    await this.drop(key);
    await this.#acquire({ key, ownerId: 'another', ttlMs }, 1_000);
  }

  /** Whether a newcomer would be refused now. */
  async taken(key: string): Promise<boolean> {
    const claim: Claim = { key, ownerId: 'a passer-by', ttlMs: 1_000 };
    if ((await this.#healthy.tryAcquire(claim, 1_000)).kind === 'busy') return true;
    await this.#healthy.release({ ...claim, keepForMs: 0 }, 1_000);
    return false;
  }

  async #acquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    const answer = await this.#healthy.tryAcquire(claim, timeoutMs);
    if (answer.kind === 'granted') this.#owners.set(claim.key, claim.ownerId);
    return answer;
  }
}

/** An answer that never comes. */
export function silence(): Promise<never> {
  return new Promise(() => undefined);
}

export function refusal(): Promise<never> {
  return Promise.reject(new Error('connection refused'));
}

/** Does what `step` does, `delayMs` later. */
export function after<T>(clock: Clock, delayMs: number, step: () => Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    clock.schedule(delayMs, () => void step().then(resolve, reject));
  });
}
