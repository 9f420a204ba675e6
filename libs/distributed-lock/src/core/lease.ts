import type { Clock, Instant } from './clock.js';
import {
  hasCode,
  LeaseLostError,
  LeaseUncertainError,
  LockNotHeldError,
  StoreUnavailableError,
  type LockErrorDetails,
} from './errors.js';
import { isLive, LeaseLife, type LeaseTimes } from './lease-life.js';
import type { LeaseState, LossReason } from './lease-state.js';
import type { LockEventHub, LockHappening, LockSubject } from './lock-events.js';
import { requireDurationMs } from './lock-options.js';
import type { Claim, LockStore, ReleaseAnswer, RenewalAnswer } from './lock-store.js';
import { jittered, type Orphans } from './orphans.js';
import { commandTimeoutMs, type Renewable, type Renewals } from './renewals.js';
import { runInside, Section } from './section.js';
import { withinTime } from './wait.js';

/** What was asked for and granted. */
export interface LeaseTerms extends LockSubject, LeaseTimes {
  /** The key with namespace and scope: what the store and the fence know it by. */
  readonly qualifiedKey: string;
  readonly ownerId: string;
  readonly token: number;
  readonly minHoldMs: number;
  /** `body`: ends with the work that runs under it. `handle`: ends when its owner releases it. */
  readonly endsWith: 'body' | 'handle';
}

export interface LeaseSurroundings {
  readonly clock: Clock;
  readonly lockStore: LockStore;
  readonly renewals: Renewals;
  readonly orphans: Orphans;
  readonly events: LockEventHub;
  /** Called once, when this process may give the key to its next local waiter. */
  readonly onVacated: () => void;
}

export type ReleaseResult = 'released' | 'already-gone';

/** What a body came to, before anybody looked at the lease. */
export type BodyResult<T> = { readonly value: T } | { readonly cause: unknown };

/** A hold of this many ttls is worth an event: renewal goes well, and the work may hang. */
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
  /** The outermost section of work under this lease. */
  readonly root: Section<Lease>;

  readonly #life: LeaseLife;
  #ttlMs: number;
  #dueAtMs: number;
  #toldLongHold = false;
  #releaseSettled = false;
  #vacated = false;
  #aborter: AbortController | undefined;
  #releasing: Promise<ReleaseResult> | undefined;
  readonly #heldSinceMs: number;
  readonly #listeners = new Set<(state: LeaseState) => void>();

  constructor(
    private readonly terms: LeaseTerms,
    private readonly around: LeaseSurroundings,
  ) {
    this.key = terms.key;
    this.template = terms.template;
    this.store = terms.store;
    this.qualifiedKey = terms.qualifiedKey;
    this.ownerId = terms.ownerId;
    this.token = terms.token;
    this.#ttlMs = terms.ttlMs;
    this.#heldSinceMs = around.clock.monotonicMs();
    this.#dueAtMs = terms.sentAt.monotonicMs + terms.ttlMs / 3;
    this.root = new Section<Lease>(this, around.clock, () => this.#rootCompleted());
    this.#life = new LeaseLife(
      around.clock,
      terms,
      (state) => this.#changed(state),
      () => void around.renewals.renewNow(this),
    );
    around.renewals.add(this);
  }

  /** As last known; {@link assertHeld} looks at the clocks first. */
  get state(): LeaseState {
    return this.#life.state;
  }

  /** The instance that granted the lease: a hold is known by its store and its qualified key. */
  get lockStore(): LockStore {
    return this.around.lockStore;
  }

  /** Names the store in fence rows: tokens of two stores do not compare. */
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
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Returns only while the lease can be relied on. Reads both clocks, because timers do not fire in a blocked or stopped
   * process.
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
      throw this.#uncertain('the clocks of this machine disagree about its deadline');
    if (this.remainingMs < this.#ttlMs / 3) throw this.#uncertain('its last renewals went unanswered');
  }

  /**
   * Renews at once and, from now on, with `ttlMs`.
   *
   * @throws {LeaseLostError} the lease is over
   * @throws {LeaseUncertainError} the store did not answer; the old deadline stands
   */
  async extend(ttlMs: number): Promise<void> {
    requireDurationMs('ttlMs', ttlMs, { atLeast: this.lockStore.minTtlMs });
    this.assertHeld();
    this.#ttlMs = ttlMs;
    await this.around.renewals.renewNow(this);
    this.assertHeld();
    if (this.state.kind === 'uncertain') throw this.#uncertain('the store did not answer the extension');
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

  /** As {@link release}; but a store that does not answer is only an event, as it must not replace the block's result. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => undefined);
  }

  /** Runs `work` in the context of this lease: `currentLease()` and guarded writes find it there. */
  async run<T>(work: () => Promise<T> | T): Promise<T> {
    this.assertHeld();
    this.root.begin();
    try {
      return this.concluded(await bodyResult(() => runInside(this.root, work)));
    } finally {
      this.root.end();
    }
  }

  /**
   * Runs the body that this lease ends with, and gives the lock back after the last section of work.
   *
   * @throws {LeaseLostError} the lease ended first; the body's value or error is attached
   */
  async runToEnd<T>(body: () => Promise<T> | T): Promise<T> {
    const result = await bodyResult(() => runInside(this.root, body));
    const concluded = await bodyResult(() => this.concluded(result));
    this.root.end();
    // Absent while nested work that nobody awaited goes on: the lock is then given back later, and its loss an event.
    const gone = (await this.#releasing?.catch(() => undefined)) === 'already-gone';
    if ('cause' in concluded) throw concluded.cause;
    if (gone) throw this.#lost('taken-over', result);
    return concluded.value;
  }

  /** The body's result, unless the lease was lost meanwhile. A refusal that the fence already named is passed on. */
  concluded<T>(result: BodyResult<T>): T {
    const state = this.#life.check();
    const told = 'cause' in result && hasCode(result.cause, 'LEASE_LOST', 'FENCED_OUT');
    if (state.kind === 'lease-lost' && !told) throw this.#lost(state.reason, result);
    if ('cause' in result) throw result.cause;
    return result.value;
  }

  /** Gives back a lease whose body will not run after all. Never throws; an unanswered release is retried behind. */
  async abandon(): Promise<void> {
    if (this.terms.endsWith === 'body') this.root.end();
    await this.release().catch(() => undefined);
  }

  /** Ends the lease for a reason that the store does not know of. Its holder learns at once. */
  lose(reason: LossReason): void {
    this.#life.lose(reason);
  }

  get claim(): Claim {
    return { key: this.qualifiedKey, ownerId: this.ownerId, ttlMs: this.#ttlMs };
  }

  get renewalDueAtMs(): number {
    return this.#dueAtMs;
  }

  renewalSent(): boolean {
    this.#life.check();
    this.#life.apply({ type: 'renewal-sent' });
    return isLive(this.state);
  }

  renewalAnswered(answer: RenewalAnswer, sentAt: Instant): void {
    // A yes that comes after the deadline is too late: the holder may have been told of the loss.
    if (!isLive(this.#life.check())) return;
    if (answer === 'lost') return this.lose('taken-over');
    const lateMs = Math.max(0, sentAt.monotonicMs - this.#dueAtMs);
    this.#dueAtMs = sentAt.monotonicMs + this.#ttlMs / 3;
    this.#life.renewed(sentAt, this.#ttlMs);
    this.#emit({ type: 'renewed', token: this.token, lateMs });
    this.#noticeLongHold();
  }

  renewalUnanswered(cause: unknown): void {
    if (!isLive(this.#life.check())) return;
    // The floor keeps retries from converging on the deadline without ever reaching it.
    const delayMs = jittered(Math.max(this.remainingMs / 4, this.#ttlMs / 30));
    this.#dueAtMs = this.around.clock.monotonicMs() + delayMs;
    this.#life.apply({ type: 'renewal-unanswered' });
    this.#emit({ type: 'renewal-unanswered', token: this.token, cause });
  }

  async #releaseOnce(): Promise<ReleaseResult> {
    const lost = this.#life.check().kind === 'lease-lost';
    this.#life.apply({ type: 'release-started' });
    try {
      const answer = await this.#sendRelease();
      if (lost) return 'already-gone';
      if (answer === 'released') this.#emit({ type: 'released', token: this.token, heldMs: this.heldMs });
      else this.#emit({ type: 'lease-lost', token: this.token, reason: 'taken-over', heldMs: this.heldMs });
      return answer === 'released' ? 'released' : 'already-gone';
    } finally {
      this.#releaseSettled = true;
      if (this.terms.endsWith === 'handle' && !lost) this.root.end();
      this.#vacateIfOver();
    }
  }

  async #sendRelease(): Promise<ReleaseAnswer> {
    const { clock, lockStore, orphans } = this.around;
    const keepForMs = Math.max(0, Math.ceil(this.terms.minHoldMs - this.heldMs));
    const request = { key: this.qualifiedKey, ownerId: this.ownerId, keepForMs };
    const timeoutMs = commandTimeoutMs(this.#ttlMs);
    try {
      return await withinTime(clock, timeoutMs, () => lockStore.release(request, timeoutMs));
    } catch (cause) {
      this.#emit({ type: 'release-unanswered', token: this.token, cause });
      orphans.giveBack(lockStore, request, this.#ttlMs);
      throw new StoreUnavailableError(
        `Store "${this.store}" did not answer the release of "${this.key}". The work itself is done; ` +
          `the key is free again within ${this.#ttlMs} ms.`,
        { ...this.#details(), outcome: 'committed', cause },
      );
    }
  }

  #rootCompleted(): void {
    // What goes wrong here has been told as an event; the awaited call looks at the promise itself.
    if (this.terms.endsWith === 'body') this.release().catch(() => undefined);
    this.#vacateIfOver();
  }

  #changed(state: LeaseState): void {
    if (!isLive(state)) this.#stop(state);
    for (const listener of this.#listeners) {
      try {
        listener(state);
      } catch {
        // A broken listener is its author's affair; the lease goes on.
      }
    }
  }

  #stop(state: LeaseState): void {
    this.around.renewals.remove(this);
    this.#aborter?.abort(this.#endError());
    if (state.kind !== 'lease-lost') return;
    this.#emit({ type: 'lease-lost', token: this.token, reason: state.reason, heldMs: this.heldMs });
    if (this.terms.endsWith === 'handle') this.root.end();
    // A body that hangs past its maximum must not keep this process's other callers out as well.
    if (state.reason === 'max-hold') this.#vacate();
  }

  #vacateIfOver(): void {
    const nobodyReleases = this.terms.endsWith === 'handle' && this.state.kind === 'lease-lost';
    if (this.root.complete && (this.#releaseSettled || nobodyReleases)) this.#vacate();
  }

  #vacate(): void {
    if (this.#vacated) return;
    this.#vacated = true;
    this.around.onVacated();
  }

  #noticeLongHold(): void {
    if (this.#toldLongHold || this.heldMs < this.#ttlMs * LONG_HOLD_TTLS) return;
    this.#toldLongHold = true;
    this.#emit({ type: 'held-long', token: this.token, heldMs: this.heldMs });
  }

  #endError(): LeaseLostError | LockNotHeldError {
    if (this.state.kind === 'lease-lost') return this.#lost(this.state.reason);
    return new LockNotHeldError(
      `Lock "${this.key}" has been released: this code outlived the call that held it. ` +
        'Await it inside that call, or take the lock anew.',
      this.#details(),
    );
  }

  #lost(
    reason: LossReason,
    result: { readonly value?: unknown; readonly cause?: unknown } = {},
  ): LeaseLostError {
    return new LeaseLostError(
      `Lock "${this.key}" was lost while its holder was at work (${reason}): another owner may be running. ` +
        'What the work did is unknown; read the data again before retrying.',
      { ...this.#details(), ...result, reason },
    );
  }

  #uncertain(why: string): LeaseUncertainError {
    return new LeaseUncertainError(
      `Lock "${this.key}" cannot be relied on at the moment: ${why}. ` +
        'What was about to be done was not done; ask again after the next renewal.',
      this.#details(),
    );
  }

  #details(): LockErrorDetails {
    return { key: this.key, store: this.store, heldMs: this.heldMs };
  }

  #emit(event: LockHappening): void {
    const { key, template, store } = this;
    this.around.events.emit({ key, template, store, ...event });
  }
}

/** What `body` came to, also when it throws before it returns a promise. */
export async function bodyResult<T>(body: () => Promise<T> | T): Promise<BodyResult<T>> {
  try {
    return { value: await body() };
  } catch (cause) {
    return { cause };
  }
}
