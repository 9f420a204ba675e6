import type { Instant } from './clock.js';
import type { LeaseLostError, LockNotHeldError } from './errors.js';
import { leaseLost, leaseReleased, leaseUncertain, releaseUnanswered } from './lease-errors.js';
import { LeaseLife } from './lease-life.js';
import { isLive, type LeaseState, type LossReason } from './lease-state.js';
import type { LeaseSurroundings, LeaseTerms, LeaseUser } from './lease-terms.js';
import type { LockHappening } from './lock-events.js';
import { requireDurationMs } from './lock-options.js';
import type { Claim, LockStore, ReleaseAnswer, RenewalAnswer } from './lock-store.js';
import { RenewalPlan } from './renewal-plan.js';
import type { Renewable } from './renewals.js';

export type ReleaseResult = 'released' | 'already-gone';
const LONG_HOLD_TTLS = 10;

/**
 * A granted lock: what its holder knows, and for how long it may still believe it.
 *
 * Its deadline is counted from before the acquire or the renewal was sent, so it never outlasts the store's. Losing the
 * lease does not stop running work: writes that must not come late need the fencing token.
 */
export class Lease implements Renewable, AsyncDisposable {
  readonly key: string;
  readonly template: string;
  /** Name of the store as configured. */
  readonly store: string;
  readonly qualifiedKey: string;
  readonly ownerId: string;
  /** Fencing token: larger than that of every earlier owner of this key in this store, the same for the whole hold. */
  readonly token: number;

  readonly #life: LeaseLife;
  readonly #plan: RenewalPlan;
  #longHoldMs: number;
  #aborter: AbortController | undefined;
  #releasing: Promise<ReleaseResult> | undefined;
  readonly #heldSinceMs: number;

  constructor(
    private readonly terms: LeaseTerms,
    private readonly around: LeaseSurroundings,
    private readonly user: LeaseUser,
  ) {
    this.key = terms.key;
    this.template = terms.template;
    this.store = terms.store;
    this.qualifiedKey = terms.qualifiedKey;
    this.ownerId = terms.ownerId;
    this.token = terms.token;
    this.#longHoldMs = terms.ttlMs * LONG_HOLD_TTLS;
    this.#heldSinceMs = around.clock.monotonicMs();
    this.#plan = new RenewalPlan(terms.sentAt.monotonicMs, terms.ttlMs);
    this.#life = new LeaseLife(
      around.clock,
      terms,
      (state) => this.#changed(state),
      () => void around.renewals.renewNow(this),
    );
    around.renewals.add(this);
  }

  /** At this moment, by both clocks. */
  get state(): LeaseState {
    return this.#life.check();
  }

  /** The instance that granted the lease. */
  get lockStore(): LockStore {
    return this.around.lockStore;
  }

  /** Names the store in fence rows. */
  get storeId(): string {
    return `${this.around.lockStore.kind}:${this.store}`;
  }

  /** Aborts when the lease is lost, and when it is released, so that stragglers of the body can stop. */
  get signal(): AbortSignal {
    this.#aborter ??= new AbortController();
    if (!isLive(this.#life.check())) this.#aborter.abort(this.#endError());
    return this.#aborter.signal;
  }

  /** How long the lease can still be believed in without another renewal; 0 once it has ended. */
  get remainingMs(): number {
    return this.#life.remainingMs;
  }

  get heldMs(): number {
    return this.around.clock.monotonicMs() - this.#heldSinceMs;
  }

  /** Returns the function that ends the subscription. Listeners that throw harm nobody. */
  onStateChange(listener: (state: LeaseState) => void): () => void {
    return this.#life.listen(listener);
  }

  /**
   * Returns only while the lease can be relied on, by both clocks: timers do not fire in a stopped process.
   *
   * @throws {LeaseLostError} the lease is over
   * @throws {LeaseUncertainError} renewals go unanswered and less than a third of the ttl is left, or the clocks disagree
   * @throws {LockNotHeldError} it has been released
   */
  assertHeld(): void {
    const state = this.#life.check();
    if (!isLive(state)) throw this.#endError();
    if (state.kind !== 'uncertain') return;
    if (state.doubt === 'clocks')
      throw leaseUncertain(this, 'the clocks of this machine disagree about its deadline');
    if (this.remainingMs < this.#plan.reliableTtlMs / 3)
      throw leaseUncertain(this, 'its last renewals went unanswered');
  }

  /**
   * Renews at once and, from now on, with `ttlMs`.
   *
   * @throws {LeaseLostError} the lease is over
   * @throws {LeaseUncertainError} the store did not answer; the old deadline stands
   */
  async extend(ttlMs: number): Promise<void> {
    const { minTtlMs, maxTtlMs } = this.lockStore;
    const atLeast = Math.max(minTtlMs, this.terms.minHoldMs);
    requireDurationMs('ttlMs', ttlMs, { atLeast, atMost: maxTtlMs });
    this.assertHeld();
    this.#plan.ttlMs = ttlMs;
    await this.around.renewals.renewAfresh(this);
    this.assertHeld();
    if (this.state.kind === 'uncertain') throw leaseUncertain(this, 'the store did not answer the extension');
  }

  /**
   * Gives the lock back, once; later calls get the same answer. `already-gone`: the store knew the grant no longer.
   * Never throws because the lease ended.
   *
   * @throws {StoreUnavailableError} the store did not answer in time. It is asked again in the background, and the
   *   grant ends by itself within the ttl.
   */
  release(): Promise<ReleaseResult> {
    return (this.#releasing ??= this.#releaseOnce());
  }

  /** As {@link release}, but a store that does not answer is only an event: it must not replace the block's result. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => undefined);
  }

  /**
   * Runs `work` in the context of this lease: `currentLease()` and guarded writes find it there.
   *
   * @throws {LeaseLostError} the lease ended before the work did; its value or error is attached
   */
  async run<T>(work: () => Promise<T> | T): Promise<T> {
    this.assertHeld();
    return this.user.run(work);
  }

  /** Ends the lease for a reason that the store does not know of. Its holder learns at once. */
  lose(reason: LossReason): void {
    this.#life.lose(reason);
  }

  /** What the holder is to be told if the lease has been lost by now; undefined while held and once released. */
  lossError(result: { readonly value?: unknown; readonly cause?: unknown } = {}): LeaseLostError | undefined {
    const state = this.#life.check();
    return state.kind === 'lease-lost' ? leaseLost(this, state.reason, result) : undefined;
  }

  get claim(): Claim {
    return { key: this.qualifiedKey, ownerId: this.ownerId, ttlMs: this.#plan.ttlMs };
  }

  get renewalDueAtMs(): number {
    return this.#plan.dueAtMs;
  }

  renewalSent(): boolean {
    this.#life.check();
    this.#life.renewalSent(this.#plan.ttlMs);
    return isLive(this.state);
  }

  renewalAnswered(answer: RenewalAnswer, sentAt: Instant, ttlMs: number): void {
    // A yes that comes after the deadline is too late: the holder may have been told of the loss.
    if (!isLive(this.#life.check())) return;
    if (answer === 'lost') return this.lose('taken-over');
    const lateMs = Math.max(0, sentAt.monotonicMs - this.#plan.dueAtMs);
    this.#plan.confirmed(sentAt.monotonicMs, ttlMs);
    this.#life.renewed(sentAt, ttlMs);
    this.#emit({ type: 'renewed', token: this.token, lateMs });
    this.#noticeLongHold();
  }

  renewalUnanswered(cause: unknown): void {
    if (!isLive(this.#life.check())) return;
    this.#plan.unanswered(this.around.clock.monotonicMs(), this.remainingMs);
    this.#life.apply({ type: 'renewal-unanswered' });
    this.#emit({ type: 'renewal-unanswered', token: this.token, cause });
  }

  async #releaseOnce(): Promise<ReleaseResult> {
    const lost = this.#life.check().kind === 'lease-lost';
    this.#life.apply({ type: 'release-started' });
    try {
      const released = (await this.#sendRelease()) === 'released';
      if (lost) return 'already-gone';
      if (released) this.#emit({ type: 'released', token: this.token, heldMs: this.heldMs });
      else this.#emit({ type: 'lease-lost', token: this.token, reason: 'taken-over', heldMs: this.heldMs });
      return released ? 'released' : 'already-gone';
    } finally {
      this.user.releaseSettled();
    }
  }

  async #sendRelease(): Promise<ReleaseAnswer> {
    const keepForMs = Math.max(0, Math.ceil(this.terms.minHoldMs - this.heldMs));
    const request = { key: this.qualifiedKey, ownerId: this.ownerId, keepForMs };
    try {
      return await this.around.orphans.release(this.lockStore, request, this.#plan.longestTtlMs);
    } catch (cause) {
      this.#emit({ type: 'release-unanswered', token: this.token, cause });
      throw releaseUnanswered(this, this.#plan.longestTtlMs, cause);
    }
  }

  #changed(state: LeaseState): void {
    if (isLive(state)) return;
    this.around.renewals.remove(this);
    this.#aborter?.abort(this.#endError());
    if (state.kind === 'released') return;
    this.#emit({ type: 'lease-lost', token: this.token, reason: state.reason, heldMs: this.heldMs });
    this.user.leaseLost(state.reason);
  }

  #noticeLongHold(): void {
    if (this.heldMs < this.#longHoldMs) return;
    this.#longHoldMs = Infinity; // told once
    this.#emit({ type: 'held-long', token: this.token, heldMs: this.heldMs });
  }

  #endError(): LeaseLostError | LockNotHeldError {
    return this.lossError() ?? leaseReleased(this);
  }

  #emit(event: LockHappening): void {
    const { key, template, store } = this;
    this.around.events.emit({ key, template, store, ...event });
  }
}
