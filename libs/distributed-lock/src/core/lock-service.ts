import { setMaxListeners } from 'node:events';

import { systemClock, type Clock } from './clock.js';
import {
  hasCode,
  isLockError,
  LockConfigInvalidError,
  LockKeyInvalidError,
  LockTimeoutError,
  SelfDeadlockError,
  ShuttingDownError,
  StoreUnavailableError,
} from './errors.js';
import type { Fence } from './fence.js';
import { bodyResult, type Lease } from './lease.js';
import { LockEventHub } from './lock-events.js';
import { labelledKey, qualifyKey, type KeyInput } from './lock-key.js';
import { requireDurationMs, resolveTiming, type LockDefaults, type LockOptions } from './lock-options.js';
import type { LockStore } from './lock-store.js';
import { Orphans } from './orphans.js';
import { commandTimeoutMs } from './renewals.js';
import { currentFrame, runInside, type Section } from './section.js';
import { StoreLocks, type Wanted } from './store-locks.js';
import { withinTime } from './wait.js';

export interface LockServiceOptions {
  /** By name; `default` is used when no name is given. */
  readonly stores: Readonly<Record<string, LockStore>>;
  /** Put before every key, so that two applications can share a server. */
  readonly namespace?: string;
  /** The tenant of the present call; becomes part of every key. Undefined refuses the call. */
  readonly scope?: () => string | undefined;
  readonly defaults?: LockDefaults;
  readonly clock?: Clock;
  readonly events?: LockEventHub;
}

/** Takes, holds and gives back locks. One instance per application; it owns no connection. */
export class LockService {
  readonly events: LockEventHub;
  readonly clock: Clock;
  readonly #locks = new Map<string, StoreLocks>();
  readonly #fences = new Set<Fence>();
  readonly #orphans: Orphans;
  readonly #closing = new AbortController();
  readonly #inversions = new Set<string>();
  #closed: Promise<void> | undefined;

  constructor(private readonly options: LockServiceOptions) {
    this.events = options.events ?? new LockEventHub();
    this.clock = options.clock ?? systemClock;
    this.#orphans = new Orphans(this.clock);
    setMaxListeners(0, this.#closing.signal); // every waiting call listens
    const around = {
      clock: this.clock,
      events: this.events,
      orphans: this.#orphans,
      closing: this.#closing.signal,
    };
    for (const [name, store] of Object.entries(options.stores)) {
      this.#locks.set(name, new StoreLocks(name, store, around));
    }
    for (const { store } of this.#locks.values()) resolveTiming({}, options.defaults ?? {}, store.minTtlMs);
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
  async withLock<T>(key: KeyInput, work: (lease: Lease) => Promise<T> | T): Promise<T>;
  async withLock<T>(key: KeyInput, options: LockOptions, work: (lease: Lease) => Promise<T> | T): Promise<T>;
  async withLock<T>(
    key: KeyInput,
    ...rest: [(lease: Lease) => Promise<T> | T] | [LockOptions, (lease: Lease) => Promise<T> | T]
  ): Promise<T> {
    const [options, work] = rest.length === 1 ? [{}, rest[0]] : rest;
    const wanted = this.want(key, options, 'body');
    const held = this.#heldSection(wanted);
    if (held) return this.#join(held, wanted, work);
    const lease = await this.#enter(wanted);
    return lease.runToEnd(() => work(lease));
  }

  /**
   * Takes the lock and hands it over as a lease that its caller has to release. Does not enter the context:
   * `lease.run(work)` does.
   *
   * @throws as {@link withLock}, and {SelfDeadlockError} when this call chain holds the key already
   */
  async acquire(key: KeyInput, options: LockOptions = {}): Promise<Lease> {
    const wanted = this.want(key, options, 'handle');
    if (this.#heldSection(wanted)) {
      throw new SelfDeadlockError(
        `Lock "${wanted.key}" is held by this very call chain, so acquire() would wait for itself. ` +
          'Nothing was taken; use withLock(), which joins the hold.',
        { key: wanted.key, store: wanted.store },
      );
    }
    return this.#enter(wanted);
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

  /** Lets a database that keeps fences take part in every acquisition. Returns the function that takes it out again. */
  addFence(fence: Fence): () => void {
    this.#fences.add(fence);
    return () => void this.#fences.delete(fence);
  }

  /** The key with namespace and scope, as stores and fences know it. */
  qualify(key: string, scope?: 'global'): string {
    return qualifyKey(key, this.options.namespace, this.#scope(key, scope));
  }

  /**
   * Stops: new acquisitions fail with `SHUTTING_DOWN`, running work may finish within `graceMs`, what is still held then
   * is lost for its holder and given back. Stores close what they opened. Twice is harmless.
   */
  close(graceMs = 10_000): Promise<void> {
    return (this.#closed ??= this.#close(graceMs));
  }

  /** True while any lease is held or given back, or any caller waits. */
  get busy(): boolean {
    return [...this.#locks.values()].some((locks) => locks.busy);
  }

  /** @throws {LockConfigInvalidError} names the stores that there are */
  locksOf(name: string): StoreLocks {
    const locks = this.#locks.get(name);
    if (locks) return locks;
    const names = [...this.#locks.keys()].map((known) => `"${known}"`).join(', ');
    throw new LockConfigInvalidError(
      `There is no lock store "${name}". Configured: ${names}. Add it under "stores" in forRoot(), or name one of these.`,
    );
  }

  /** Checks a request before anything is sent. */
  want(keyInput: KeyInput, options: LockOptions, endsWith: Wanted['endsWith']): Wanted {
    const locks = this.locksOf(options.store ?? 'default');
    const timing = resolveTiming(options, this.options.defaults ?? {}, locks.store.minTtlMs);
    if (timing.minHoldMs > 0 && !locks.store.keepsReleasedKeys) {
      throw new LockConfigInvalidError(
        `Store "${locks.name}" (${locks.store.kind}) cannot keep a key after its release, so minHoldMs is refused.`,
      );
    }
    const { key, template } = labelledKey(keyInput);
    const qualifiedKey = this.qualify(key, options.scope);
    return { ...timing, key, template, qualifiedKey, store: locks.name, endsWith, signal: options.signal };
  }

  async #enter(wanted: Wanted): Promise<Lease> {
    if (this.#closing.signal.aborted) throw shuttingDown(wanted);
    this.#noticeInversion(wanted);
    for (const fence of this.#fences) fence.beforeAcquire(wanted);
    const lease = await this.#acquireReporting(wanted);
    try {
      await this.#raiseFences(lease);
      if (this.#closing.signal.aborted) throw shuttingDown(wanted);
      lease.assertHeld();
      return lease;
    } catch (error) {
      await lease.abandon();
      throw error;
    }
  }

  async #acquireReporting(wanted: Wanted): Promise<Lease> {
    const startedAtMs = this.clock.monotonicMs();
    try {
      return await this.locksOf(wanted.store).acquire(wanted);
    } catch (error) {
      if (isLockError(error)) {
        const { key, template, store } = wanted;
        const waitedMs = this.clock.monotonicMs() - startedAtMs;
        this.events.emit({ type: 'refused', key, template, store, code: error.code, waitedMs });
      }
      throw error;
    }
  }

  /** Before the body, so that a predecessor's late write is refused even if the new owner never writes. */
  async #raiseFences(lease: Lease): Promise<void> {
    for (const fence of this.#fences) {
      const timeoutMs = commandTimeoutMs(lease.claim.ttlMs);
      try {
        await withinTime(this.clock, timeoutMs, () => fence.raise(lease, timeoutMs));
      } catch (cause) {
        if (isLockError(cause)) throw cause;
        throw new StoreUnavailableError(
          `The fence of "${lease.key}" could not be raised, so a late write of an earlier owner could not be refused. ` +
            'The work did not start and the lock was given back; check the database, then try again.',
          { key: lease.key, store: lease.store, cause },
        );
      }
    }
  }

  /** The innermost section of this call chain that holds the key, while that hold lasts. */
  #heldSection(wanted: Wanted): Section<Lease> | undefined {
    const { store } = this.locksOf(wanted.store);
    for (let frame = currentFrame(); frame; frame = frame.outer) {
      const section = frame.section as Section<Lease>;
      const { hold } = section;
      const same = hold.lockStore === store && hold.qualifiedKey === wanted.qualifiedKey;
      if (same && !hold.root.complete && hold.state.kind !== 'released') return section;
    }
    return undefined;
  }

  async #join<T>(held: Section<Lease>, wanted: Wanted, work: (lease: Lease) => Promise<T> | T): Promise<T> {
    const lease = held.hold;
    const signals = wanted.signal ? [wanted.signal] : [];
    const section = await held.openChild({ timeoutMs: wanted.waitMs, signals });
    if (section === 'aborted') throw wanted.signal?.reason;
    if (section === 'timed-out') throw siblingsTookTooLong(wanted);
    try {
      lease.assertHeld();
      return lease.concluded(await bodyResult(() => runInside(section, () => work(lease))));
    } finally {
      section.end();
    }
  }

  #noticeInversion(wanted: Wanted): void {
    for (let frame = currentFrame(); frame; frame = frame.outer) {
      const held = frame.section.hold as Lease;
      if (held.qualifiedKey <= wanted.qualifiedKey || held.state.kind === 'released') continue;
      const pair = `${held.template}\n${wanted.template}`;
      if (this.#inversions.has(pair) || this.#inversions.size >= MOST_INVERSIONS) continue;
      this.#inversions.add(pair);
      const { key, template, store } = wanted;
      this.events.emit({ type: 'order-inversion', key, template, store, heldTemplate: held.template });
    }
  }

  #scope(key: string, scope: 'global' | undefined): string | null | undefined {
    if (!this.options.scope) return undefined;
    if (scope === 'global') return null;
    const tenant = this.options.scope();
    if (typeof tenant === 'string' && tenant !== '') return tenant;
    throw new LockKeyInvalidError(
      `The configured scope gave no value for "${key}", so its tenant is unknown. Nothing was locked; ` +
        "set the scope for this call, or write { scope: 'global' } for work that belongs to no tenant.",
      { key },
    );
  }

  async #close(graceMs: number): Promise<void> {
    requireDurationMs('graceMs', graceMs, { atLeast: 0 });
    this.#closing.abort();
    const all = [...this.#locks.values()];
    await Promise.all(all.map((locks) => locks.drain(graceMs)));
    await this.#orphans.close(ORPHAN_GRACE_MS);
    await Promise.allSettled(all.map(({ store }) => store.close()));
  }
}

const MOST_INVERSIONS = 100;
const ORPHAN_GRACE_MS = 1_000;

function shuttingDown({ key, store }: Wanted): ShuttingDownError {
  return new ShuttingDownError(
    `Lock "${key}" was not taken: this process is shutting down. The work did not start.`,
    { key, store },
  );
}

function siblingsTookTooLong({ key, store, waitMs }: Wanted): LockTimeoutError {
  return new LockTimeoutError(
    `Lock "${key}" is held by this call chain, but other calls inside the same hold took all of ${waitMs} ms. ` +
      'This one did not start.',
    { key, store, waitedMs: waitMs, retryAfterMs: null },
  );
}
