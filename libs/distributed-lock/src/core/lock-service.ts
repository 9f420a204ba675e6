import { shuttingDown, siblingsTookTooLong } from './acquire-wait.js';
import { systemClock, type Clock } from './clock.js';
import { hasCode, isLockError, LockConfigInvalidError, SelfDeadlockError, setOutcome } from './errors.js';
import { Fences, foreignStore, type TokenOrigin } from './fence.js';
import type { Hold, HoldEnd } from './hold.js';
import type { HandedOverToken } from './handed-over.js';
import { KeyScope } from './key-scope.js';
import { endedTooEarly } from './lease-errors.js';
import type { Lease } from './lease.js';
import { LockEventHub } from './lock-events.js';
import { labelledKey, type KeyInput } from './lock-key.js';
import { requireDurationMs, resolveTiming, type LockOptions } from './lock-options.js';
import type { LockedWork, LockServiceOptions } from './lock-service-options.js';
import { OrderInversions } from './order-inversions.js';
import { Orphans } from './orphans.js';
import { currentFrame, type Section } from './section.js';
import { StoreLocks, type Wanted } from './store-locks.js';
import { withinTime } from './wait.js';

/** After the grace time of a shutdown, unanswered releases get this long. */
const ORPHAN_GRACE_MS = 1_000;
/** A driver that hangs must not keep the process from ending. */
const STORE_CLOSE_MS = 5_000;

/** Takes, holds and gives back locks. One instance per application. */
export class LockService {
  readonly events: LockEventHub;
  readonly clock: Clock;
  /** The databases that take part in every acquisition. */
  readonly fences: Fences;
  readonly #scope: KeyScope;
  readonly #locks = new Map<string, StoreLocks>();
  readonly #orphans: Orphans;
  readonly #inversions: OrderInversions;
  readonly #closing = new AbortController();
  #closed: Promise<void> | undefined;

  /** @throws {LockConfigInvalidError} a default makes no sense */
  constructor(private readonly options: LockServiceOptions) {
    const events = (this.events = options.events ?? new LockEventHub());
    const clock = (this.clock = options.clock ?? systemClock);
    const orphans = (this.#orphans = new Orphans(clock));
    this.#scope = new KeyScope(options);
    this.fences = new Fences(clock);
    this.#inversions = new OrderInversions(events);
    for (const [name, store] of Object.entries(options.stores)) {
      resolveTiming({}, options.defaults ?? {}, store);
      this.#locks.set(
        name,
        new StoreLocks(name, store, { clock, events, orphans, closing: this.#closing.signal }),
      );
    }
  }

  /** Asks every store once whether it can be used, and rejects with what to change. */
  async open(): Promise<void> {
    for (const { store } of this.#locks.values()) await store.open?.();
  }

  /**
   * Runs `work` while holding `key`, and resolves with its result.
   *
   * A call chain that holds the key already joins its hold: same lease, same token. Calls started side by side inside
   * one hold take turns. Losing the lease does not stop `work`: pass `lease.signal` to what can be cancelled, and the
   * token to whatever must refuse a late write.
   *
   * @throws {LockTimeoutError} the key stayed held for all of `waitMs`; `work` did not run
   * @throws {StoreUnavailableError} the store did not answer; `work` did not run
   * @throws {LeaseLostError} the lease ended first; `work` ran, and its effect is unknown
   * @throws {LockKeyInvalidError | LockConfigInvalidError} the key or an option is wrong; `work` did not run
   */
  async withLock<T>(key: KeyInput, work: LockedWork<T>): Promise<T>;
  async withLock<T>(key: KeyInput, options: LockOptions, work: LockedWork<T>): Promise<T>;
  async withLock<T>(key: KeyInput, ...rest: [LockedWork<T>] | [LockOptions, LockedWork<T>]): Promise<T> {
    const [options = {}, work] = rest.length === 1 ? [{}, rest[0]] : rest;
    if (typeof work !== 'function') {
      throw new LockConfigInvalidError('withLock() got no work: pass a function as its last argument.');
    }
    const wanted = this.#want(key, options, 'body');
    const held = this.#heldSection(wanted);
    if (held) return this.#join(held, wanted, work);
    const hold = await this.#enter(wanted);
    return hold.runToEnd(() => work(hold.lease));
  }

  /**
   * Takes the lock and hands it over as a lease that its caller has to release. Does not enter the context:
   * `lease.run(work)` does.
   *
   * @throws as {@link withLock}; {SelfDeadlockError} when this call chain holds the key already
   */
  async acquire(key: KeyInput, options: LockOptions = {}): Promise<Lease> {
    const wanted = this.#want(key, options, 'handle');
    if (this.#heldSection(wanted)) {
      throw new SelfDeadlockError(
        `Lock "${wanted.key}" is held by this very call chain, so acquire() would wait for itself. ` +
          'Nothing was taken; use withLock(), which joins the hold.',
        { key: wanted.key, store: wanted.store },
      );
    }
    return (await this.#enter(wanted)).lease;
  }

  /** As {@link acquire}, but null when the key is busy. Tries once unless `waitMs` says otherwise. */
  async tryAcquire(key: KeyInput, options: LockOptions = {}): Promise<Lease | null> {
    try {
      return await this.acquire(key, { waitMs: 0, ...options });
    } catch (error) {
      if (hasCode(error, 'LOCK_TIMEOUT')) return null;
      throw error;
    }
  }

  /**
   * The key with namespace and scope, as stores and fences know it.
   *
   * @throws {LockKeyInvalidError} a scope is configured and gave nothing
   */
  qualify(key: string, scope?: 'global'): string {
    return this.#scope.qualify(key, scope);
  }

  /**
   * Asks all fences whether a token that was handed over is the newest of its key. One that is ahead raises the fence.
   *
   * @throws {StaleTokenError | TokenInvalidError} a newer owner is there; it is too far ahead of the database's clock
   * @throws {StoreUnavailableError} a fence did not answer
   */
  async acceptToken({ key, token }: HandedOverToken, origin: TokenOrigin = 'default'): Promise<void> {
    const { name, store } = typeof origin === 'object' ? foreignStore(origin) : this.#locksOf(origin);
    const where = { qualifiedKey: this.qualify(key), store: name, storeId: `${store.kind}:${name}` };
    await this.fences.accept({ key, token, ...where });
  }

  /**
   * Refuses options that could never work, without taking anything: for checks at boot.
   *
   * @throws {LockConfigInvalidError} names the option, or the stores that there are
   */
  checkOptions(options: LockOptions): void {
    resolveTiming(options, this.options.defaults ?? {}, this.#locksOf(options.store).store);
  }

  /** True while any key is held, given back or waited for. */
  get busy(): boolean {
    return [...this.#locks.values()].some((locks) => locks.busy);
  }

  /**
   * Stops: new acquisitions fail with `SHUTTING_DOWN`, running work may finish within `graceMs`, what is still held then
   * is lost for its holder and given back. Stores close what they opened. Twice is harmless.
   */
  async close(graceMs = 10_000): Promise<void> {
    requireDurationMs('graceMs', graceMs, { atLeast: 0 });
    await (this.#closed ??= this.#close(graceMs));
  }

  /** Checks a request before anything is sent. */
  #want(keyInput: KeyInput, options: LockOptions, endsWith: HoldEnd): Wanted {
    const locks = this.#locksOf(options.store);
    const timing = resolveTiming(options, this.options.defaults ?? {}, locks.store);
    const { key, template } = labelledKey(keyInput);
    const qualifiedKey = this.qualify(key, options.scope);
    return { ...timing, key, template, qualifiedKey, store: locks.name, endsWith, signal: options.signal };
  }

  async #enter(wanted: Wanted): Promise<Hold> {
    const startedAtMs = this.clock.monotonicMs();
    try {
      return await this.#take(wanted);
    } catch (error) {
      if (isLockError(error)) {
        setOutcome(error, 'not-started');
        const { key, template, store } = wanted;
        const waitedMs = this.clock.monotonicMs() - startedAtMs;
        this.events.emit({ type: 'refused', key, template, store, code: error.code, waitedMs });
      }
      throw error;
    }
  }

  async #take(wanted: Wanted): Promise<Hold> {
    if (this.#closing.signal.aborted) throw shuttingDown(wanted);
    this.#inversions.notice(wanted);
    this.fences.beforeAcquire(wanted);
    const hold = await this.#locksOf(wanted.store).acquire(wanted);
    try {
      await this.fences.raise(hold.lease);
      wanted.signal?.throwIfAborted();
      if (this.#closing.signal.aborted) throw shuttingDown(wanted);
      hold.lease.assertHeld();
      return hold;
    } catch (error) {
      await hold.abandon();
      throw hasCode(error, 'LEASE_LOST', 'LEASE_UNCERTAIN') ? endedTooEarly(hold.lease, error) : error;
    }
  }

  /** The innermost section of this call chain that holds the key, while that hold lasts. */
  #heldSection(wanted: Wanted): Section<Hold> | undefined {
    const { store } = this.#locksOf(wanted.store);
    for (let frame = currentFrame(); frame; frame = frame.outer) {
      const section = frame.section as Section<Hold>;
      const { lease, open } = section.hold;
      if (open && lease.lockStore === store && lease.qualifiedKey === wanted.qualifiedKey) return section;
    }
    return undefined;
  }

  async #join<T>(held: Section<Hold>, wanted: Wanted, work: LockedWork<T>): Promise<T> {
    const { hold } = held;
    const { signal, waitMs: timeoutMs } = wanted;
    signal?.throwIfAborted();
    const signals = signal ? [signal, hold.lease.signal] : [hold.lease.signal];
    const section = await held.openChild({ timeoutMs, signals });
    if (section === 'timed-out') throw siblingsTookTooLong(wanted);
    if (section === 'aborted') {
      signal?.throwIfAborted();
      throw hold.lease.signal.reason;
    }
    try {
      hold.lease.assertHeld();
      return await hold.runIn(section, () => work(hold.lease));
    } finally {
      section.end();
    }
  }

  #locksOf(name: string = 'default'): StoreLocks {
    const locks = this.#locks.get(name);
    if (locks) return locks;
    const names = [...this.#locks.keys()].map((known) => `"${known}"`).join(', ');
    throw new LockConfigInvalidError(
      `There is no lock store "${name}". Configured: ${names}. Add it under "stores", or name one of these.`,
    );
  }

  async #close(graceMs: number): Promise<void> {
    this.#closing.abort();
    const all = [...this.#locks.values()];
    await Promise.all(all.map((locks) => locks.drain(graceMs)));
    await this.#orphans.close(ORPHAN_GRACE_MS);
    const ends = all.map(({ store }) => withinTime(this.clock, STORE_CLOSE_MS, () => store.close()));
    await Promise.allSettled(ends);
  }
}
