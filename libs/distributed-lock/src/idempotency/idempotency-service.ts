import {
  commandTimeoutMs,
  hasCode,
  KeyScope,
  requireDurationMs,
  StoreUnavailableError,
  systemClock,
  withinTime,
  type Clock,
  type Fences,
  type KeyScopeOptions,
  type LockService,
} from '../core/index.js';
import { runsInside } from './attempt.js';
import { AttemptRun, type IdempotentWork, type Replay } from './attempt-run.js';
import { Claiming } from './claiming.js';
import { IdempotencyListeners, type IdempotencyListener } from './idempotency-events.js';
import {
  resolveDefaults,
  resolveOptions,
  type IdempotencyDefaults,
  type ResolvedOptions,
  type RunOnceOptions,
} from './idempotency-options.js';
import type { IdempotencyStore } from './idempotency-store.js';
import { InsideRun } from './inside-run.js';
import type { CallContext } from './owned-record.js';
import { Purges, type PurgeOptions } from './purging.js';
import { identify, type IdempotentCall } from './record-identity.js';
import { viewOf, type RecordView } from './record-view.js';
import { reentrant, shuttingDown } from './refusals.js';
import { Running } from './running.js';
import { storedAnswer } from './stored-answer.js';
import { keepResult, type ResultEncryption, type ResultRules } from './stored-result.js';

export interface IdempotencyServiceOptions extends KeyScopeOptions {
  readonly store: IdempotencyStore;
  readonly defaults?: IdempotencyDefaults;
  readonly encryption?: ResultEncryption;
  readonly clock?: Clock;
  /** Asked before each call, so that none begins inside a transaction: `locks.fences`. */
  readonly fences?: Pick<Fences, 'requireOutside'>;
  /** Told of everything that happens. What it throws is dropped. */
  readonly onEvent?: IdempotencyListener;
}

const STORE_CLOSE_MS = 5_000;

/** One effect and one answer for each key. One instance per application. */
export class IdempotencyService {
  readonly #store: IdempotencyStore;
  readonly #defaults: Required<IdempotencyDefaults>;
  readonly #clock: Clock;
  readonly #scope: KeyScope;
  readonly #running: Running;
  readonly #listeners = new IdempotencyListeners();
  readonly #purges: Purges;

  /** @throws {LockConfigInvalidError} a default makes no sense */
  constructor(private readonly options: IdempotencyServiceOptions) {
    this.#store = options.store;
    this.#defaults = resolveDefaults(options.defaults);
    this.#clock = options.clock ?? systemClock;
    this.#scope = new KeyScope(options);
    this.#running = new Running(this.#clock);
    this.#purges = new Purges(this.#store, this.#clock, this.#running, this.#listeners);
    if (options.onEvent) this.#listeners.subscribe(options.onEvent);
    this.checkOptions({});
  }

  /** The kind of store, e.g. `redis`. */
  get storeKind(): string {
    return this.#store.kind;
  }

  /** Keys of the calls that are under way in this process. */
  get runningKeys(): readonly string[] {
    return this.#running.keys;
  }

  /** Tells of everything that happens from now on; returns the function that ends this. What `listener` throws is dropped. */
  subscribe(listener: IdempotencyListener): () => void {
    return this.#listeners.subscribe(listener);
  }

  /** Asks the store once whether it can be used, and rejects with what to change. */
  async open(): Promise<void> {
    await this.#store.open?.();
  }

  /**
   * Runs `work` once for each key, and gives every caller its answer: later ones get the stored result, with its types, and
   * those that come while it runs wait for it.
   *
   * It does not promise that `work` begins only once: after a crash it runs again unless `onCrash` says otherwise. Pass
   * `attempt.idempotencyKey` to whatever is outside, and the fencing token of a lock to what must refuse a late write.
   *
   * @throws {IdempotencyInProgressError} the same call was at work elsewhere for all of `waitMs`; `work` did not run
   * @throws {IdempotencyKeyReusedError} the key came with another fingerprint; `work` did not run
   * @throws {IdempotencyOutcomeUnknownError} an earlier attempt crashed and may not be repeated; `work` did not run
   * @throws {IdempotencyResultOmittedError} it was done earlier, and its result could not be kept; `work` did not run
   * @throws {IdempotencyLeaseLostError} another attempt took over while `work` ran, and has not answered yet
   * @throws {IdempotencyReentrantError} `work` called itself with its own key
   * @throws {LockInsideTransactionError} a transaction is open in this call chain, and may yet be rolled back; not begun
   * @throws {StoreUnavailableError} the store did not answer; `work` did not run
   */
  async runOnce<T>(
    call: string | IdempotentCall,
    options: RunOnceOptions<T>,
    work: IdempotentWork<T>,
  ): Promise<T> {
    const resolved = resolveOptions(options, this.#defaults, this.#store);
    const context = this.#contextOf(call, resolved);
    this.#requireReady(context, resolved);
    this.#running.begun(context.identity);
    try {
      const rules = this.#resultRules(context, resolved);
      const replay: Replay<T> = (result) => storedAnswer(context, result, resolved, rules);
      const { transactions } = context.store;
      if (transactions && resolved.transactional?.claim === 'inside')
        return await new InsideRun(context, transactions, resolved, rules, replay).run(work);
      const claiming = new Claiming(context, resolved);
      const answer = await claiming.ask();
      const claimed = answer?.kind === 'done' ? answer : await claiming.conclude(answer);
      if (claimed.kind === 'owned')
        return await new AttemptRun(context, claimed.record, resolved, rules, replay).run(work);
      context.tell({ type: 'replayed', waitedMs: claiming.waitedMs });
      return replay(claimed.result);
    } finally {
      this.#running.ended(context.identity);
    }
  }

  /**
   * Refuses options that could never work, without claiming anything: for checks at boot.
   *
   * @throws {LockConfigInvalidError} names the option
   */
  checkOptions<T>(options: RunOnceOptions<T>): void {
    resolveOptions(options, this.#defaults, this.#store);
  }

  /** What the store knows of the key; null when that is nothing. The result itself is not shown. */
  async inspect(call: string | IdempotentCall): Promise<RecordView | null> {
    const record = await this.#ask(call, (id, timeoutMs) => this.#store.read(id, timeoutMs));
    return record && viewOf(record);
  }

  /** Lets the next call run anew. `'running'`: somebody is at work on it, and the record was left alone. */
  forget(call: string | IdempotentCall): Promise<'forgotten' | 'running' | 'absent'> {
    return this.#ask(call, (id, timeoutMs) => this.#store.forget(id, timeoutMs));
  }

  /**
   * Says how a call ended whose outcome was unknown: every later caller gets `value`. `'refused'`: its outcome is known, or
   * somebody is at work on it.
   */
  async resolve<T>(
    call: string | IdempotentCall,
    value: T,
    options: RunOnceOptions<T> = {},
  ): Promise<'resolved' | 'refused'> {
    const resolved = resolveOptions(options, this.#defaults, this.#store);
    const context = this.#contextOf(call, resolved);
    const { result } = await keepResult(
      context.identity.id,
      'value',
      value,
      this.#resultRules(context, resolved),
    );
    return this.#ask(call, (id, timeoutMs) =>
      this.#store.resolve(id, result, resolved.retentionMs, timeoutMs),
    );
  }

  /**
   * Deletes what has expired, in batches, while no other process does. Housekeeping only: expired records are absent anyway.
   *
   * @returns how many records were deleted; 0 when another process was at it
   */
  purge(locks: LockService, options: PurgeOptions = {}): Promise<number> {
    return this.#purges.purge(locks, options);
  }

  /**
   * Purges again and again until this service closes, each time after half to all of `everyMs`, so that processes do not
   * come in step; never if that is Infinity or the store does it by itself. A purge that fails is an event, and the next one
   * tries again. It keeps no process alive.
   */
  purgeEvery(everyMs: number, locks: LockService, options: PurgeOptions = {}): void {
    requireDurationMs('purgeEveryMs', everyMs, { atLeast: 1, infinite: true });
    if (everyMs !== Infinity && !this.#store.purgesItself) this.#purges.planEvery(everyMs, locks, options);
  }

  /**
   * Takes no new calls, lets running ones finish for up to `graceMs` and a purge its present batch, then closes the store.
   * What still runs then is not freed, since that would let others begin beside it: its record lapses.
   */
  async close({ graceMs = 10_000 }: { readonly graceMs?: number } = {}): Promise<void> {
    this.#purges.stopPlan();
    await this.#running.close(graceMs);
    await withinTime(this.#clock, STORE_CLOSE_MS, () => this.#store.close());
  }

  #contextOf<T>(call: string | IdempotentCall, { leaseMs, keepMs }: ResolvedOptions<T>): CallContext {
    const identity = identify(typeof call === 'string' ? { key: call } : call, this.#scope);
    return {
      store: this.#store,
      clock: this.#clock,
      identity,
      leaseMs,
      keepMs,
      tell: (happening) => this.#listeners.tell(identity, happening),
    };
  }

  #resultRules<T>(context: CallContext, { classes = {}, maxResultBytes }: ResolvedOptions<T>): ResultRules {
    const { encryption } = this.options;
    const onPlain = (className: string): void => context.tell({ type: 'class-not-registered', className });
    return { classes, maxResultBytes, encryption, onPlain };
  }

  async #ask<A>(
    call: string | IdempotentCall,
    step: (id: string, timeoutMs: number) => Promise<A>,
  ): Promise<A> {
    const { leaseMs } = resolveOptions({}, this.#defaults, this.#store);
    const { id, key } = identify(typeof call === 'string' ? { key: call } : call, this.#scope);
    const timeoutMs = commandTimeoutMs(leaseMs);
    try {
      return await withinTime(this.#clock, timeoutMs, () => step(id, timeoutMs));
    } catch (cause) {
      if (hasCode(cause, 'STORE_UNAVAILABLE')) throw cause;
      const outcome = 'unknown';
      const message = `The idempotency store did not answer about "${key}". Whether the record has changed is unknown; ask again.`;
      throw new StoreUnavailableError(message, { key, store: this.#store.kind, outcome, cause });
    }
  }

  /** Not inside of a transaction either: a record that is done would outlive it if it is rolled back. */
  #requireReady<T>(context: CallContext, { transactional }: ResolvedOptions<T>): void {
    const { identity, store } = context;
    if (this.#running.closing.aborted) throw shuttingDown(context);
    if (runsInside(identity.id)) throw reentrant(context);
    this.options.fences?.requireOutside(identity.key);
    if (transactional) store.transactions?.requireReady(identity.key);
  }
}
