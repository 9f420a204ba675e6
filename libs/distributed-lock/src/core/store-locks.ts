import { AcquireWait, type Unanswered } from './acquire-wait.js';
import type { Clock } from './clock.js';
import { Hold, type HoldEnd } from './hold.js';
import { reliableMs } from './lease-life.js';
import { LocalKey } from './local-key.js';
import type { LockEventHub, LockHappening, LockSubject } from './lock-events.js';
import type { LockTiming } from './lock-options.js';
import type { Busy, Claim, Grant, LockStore } from './lock-store.js';
import type { Orphans } from './orphans.js';
import { newOwnerId } from './owner-id.js';
import { Renewals } from './renewals.js';
import { acquireAnswer } from './store-answers.js';
import { jittered, NoAnswer, startWait, withinTime } from './wait.js';
import { WakeUps } from './wake-ups.js';

/** One acquisition, checked and complete. */
export interface Wanted extends LockSubject, LockTiming {
  readonly qualifiedKey: string;
  readonly endsWith: HoldEnd;
  readonly signal?: AbortSignal;
}

/** The first pause after a busy answer, the longest, and the shortest. */
const FIRST_PAUSE_MS = 8;
const LONGEST_PAUSE_MS = 250;
const SHORTEST_PAUSE_MS = 4;
/** While the store would say that the key is free: what a wake-up that went astray costs at the most. */
const WATCHED_PAUSE_MS = 2_000;

/**
 * The locks of one store as this process takes them.
 *
 * Local first: callers of one key queue here, in order, and one of them contends in the store.
 */
export class StoreLocks {
  /** Keys that are held, given back or waited for here, and no others. */
  readonly #keys = new Map<string, LocalKey>();
  readonly #renewals: Renewals;
  #onIdle: (() => void) | undefined;

  constructor(
    readonly name: string,
    readonly store: LockStore,
    private readonly around: {
      readonly clock: Clock;
      readonly events: LockEventHub;
      readonly orphans: Orphans;
      /** Aborts when the process begins to stop. */
      readonly closing: AbortSignal;
    },
  ) {
    this.#renewals = new Renewals(store, around.clock);
  }

  /** True while a key is held, given back or waited for. */
  get busy(): boolean {
    return this.#keys.size > 0;
  }

  /** Lets work finish for `graceMs`; what is held then is lost for its holder and given back. Never rejects. */
  async drain(graceMs: number): Promise<void> {
    if (this.busy) await this.#idleWithin(graceMs);
    const left = [...this.#keys.values()].flatMap(({ hold }) => (hold ? [hold.lease] : []));
    for (const lease of left) lease.lose('session-ended');
    await Promise.allSettled(left.map((lease) => lease.release()));
  }

  /**
   * @throws {LockTimeoutError} the key stayed held for all of `waitMs`
   * @throws {StoreUnavailableError} the store's last answer within `waitMs` was none
   * @throws {ShuttingDownError} the process began to stop meanwhile
   * @throws the reason of `wanted.signal`
   */
  async acquire(wanted: Wanted): Promise<Hold> {
    const wait = new AcquireWait(this.around.clock, wanted, this.around.closing);
    wait.refuseIfAborted();
    const local = this.#keys.get(wanted.qualifiedKey) ?? this.#newKey(wanted.qualifiedKey);
    if (!local.turns.tryTake()) await this.#waitForTurn(local, wait);
    try {
      return await this.#contend(wanted, wait, local);
    } catch (error) {
      this.#leave(wanted.qualifiedKey, local);
      throw error;
    }
  }

  #idleWithin(timeoutMs: number): Promise<unknown> {
    return new Promise((resolve) => {
      const grace = startWait(this.around.clock, { timeoutMs, signals: [] }, resolve);
      this.#onIdle = () => grace.wake();
    });
  }

  #newKey(key: string): LocalKey {
    const local = new LocalKey(this.around.clock);
    this.#keys.set(key, local);
    return local;
  }

  async #waitForTurn(local: LocalKey, wait: AcquireWait): Promise<void> {
    const end = await local.turns.take(wait.limit);
    if (end === 'timed-out') throw wait.error(local.hearsay);
    if (end === 'aborted') throw wait.abortion();
  }

  /** Lets the next caller of this process in. */
  #leave(key: string, local: LocalKey): void {
    local.turns.pass();
    if (!local.turns.idle) return;
    this.#keys.delete(key);
    if (!this.busy) this.#onIdle?.();
  }

  async #contend(wanted: Wanted, wait: AcquireWait, local: LocalKey): Promise<Hold> {
    let wakeUps: WakeUps | undefined;
    try {
      for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
        wait.refuseIfAborted();
        const answer = await this.#try(wanted, wait, local);
        if (answer instanceof Hold) return answer;
        wait.refuseIfAborted();
        if (wait.remainingMs === 0) throw wait.error(answer);
        wakeUps ??= new WakeUps(this.store, wanted.qualifiedKey);
        const calm = answer.kind === 'busy' && wakeUps.heard;
        const timeoutMs = Math.min(soonMs(answer, calm ? WATCHED_PAUSE_MS : pauseMs), wait.remainingMs);
        await wakeUps.pause(this.around.clock, { ...wait.limit, timeoutMs });
      }
    } finally {
      wakeUps?.stop();
    }
  }

  /** One try with an owner id of its own. Unless the answer was a clear no, the store is told to forget that id. */
  async #try(wanted: Wanted, wait: AcquireWait, local: LocalKey): Promise<Hold | Busy | Unanswered> {
    const { qualifiedKey: key, ttlMs } = wanted;
    const claim: Claim = { key, ownerId: newOwnerId(), ttlMs };
    const timeoutMs = wait.beginTry();
    let asked: Promise<unknown> | undefined;
    const command = (): Promise<Grant | Busy> => {
      const answer = this.store.tryAcquire(claim, timeoutMs);
      asked = answer;
      return answer;
    };
    local.asked();
    try {
      const answer = acquireAnswer(
        await withinTime(this.around.clock, timeoutMs, command, { signals: wait.ownSignals }),
      );
      if (answer.kind === 'busy') return local.heard(answer);
      if (wait.triedForMs >= reliableMs(ttlMs)) throw new Error('this process slept through its own lease');
      return this.#grant(wanted, claim, answer.token, wait, local);
    } catch (cause) {
      this.#forget(claim, cause instanceof NoAnswer ? asked : undefined);
      if (!wait.aborted) this.#emit(wanted, { type: 'acquire-unanswered', cause });
      return local.heard({ kind: 'unanswered', cause });
    }
  }

  /** A command that is still under way may take the key after it was given back: at its end that is done once more. */
  #forget({ key, ownerId, ttlMs }: Claim, underWay: Promise<unknown> | undefined): void {
    const giveBack = (): void =>
      this.around.orphans.giveBack(this.store, { key, ownerId, keepForMs: 0 }, ttlMs);
    giveBack();
    if (underWay) void Promise.resolve(underWay).then(giveBack, giveBack);
  }

  #grant(wanted: Wanted, claim: Claim, token: number, wait: AcquireWait, local: LocalKey): Hold {
    const { clock, events, orphans } = this.around;
    const hold = new Hold(
      { ...wanted, ownerId: claim.ownerId, token, sentAt: wait.triedAt },
      { clock, events, orphans, lockStore: this.store, renewals: this.#renewals },
      wanted.endsWith,
      () => {
        local.hold = undefined;
        this.#leave(wanted.qualifiedKey, local);
      },
    );
    local.heldBy(hold);
    this.#emit(wanted, { type: 'acquired', token, waitedMs: wait.waitedMs, attempts: wait.tries });
    return hold;
  }

  #emit({ key, template, store }: Wanted, event: LockHappening): void {
    this.around.events.emit({ key, template, store, ...event });
  }
}

/** When to ask again: not in step with other processes, and no later than the present grant runs. */
function soonMs(answer: Busy | Unanswered, pauseMs: number): number {
  const holderEndsMs = answer.kind === 'busy' ? (answer.retryAfterMs ?? Infinity) + 1 : Infinity;
  return Math.max(SHORTEST_PAUSE_MS, Math.min(jittered(pauseMs), holderEndsMs));
}
