import { randomBytes } from 'node:crypto';

import { AcquireWait, type Unanswered } from './acquire-wait.js';
import type { Clock } from './clock.js';
import { Hold, type HoldEnd } from './hold.js';
import type { LockEventHub, LockHappening, LockSubject } from './lock-events.js';
import type { LockTiming } from './lock-options.js';
import type { Busy, Claim, LockStore } from './lock-store.js';
import { jittered, type Orphans } from './orphans.js';
import { Renewals } from './renewals.js';
import { TurnQueue } from './turn-queue.js';
import { NoAnswer, pause, withinTime } from './wait.js';

/** One acquisition, checked and complete. */
export interface Wanted extends LockSubject, LockTiming {
  readonly qualifiedKey: string;
  readonly endsWith: HoldEnd;
  readonly signal?: AbortSignal;
}

/** The first pause after a busy answer, and the longest. A store with wake-ups will cut them short. */
const FIRST_PAUSE_MS = 8;
const LONGEST_PAUSE_MS = 250;
/**
 * The locks of one store as this process takes them.
 *
 * Local first: callers of one key queue here, in order, and one of them contends in the store.
 */
export class StoreLocks {
  readonly #queues = new Map<string, TurnQueue>();
  readonly #holds = new Set<Hold>();
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
    return this.#queues.size > 0;
  }

  /** Lets work finish for `graceMs`; what is held then is lost for its holder and given back. Never rejects. */
  async drain(graceMs: number): Promise<void> {
    const idle = new Promise<void>((resolve) => (this.#onIdle = resolve));
    const work = this.#holds.size > 0 ? idle : Promise.resolve();
    await withinTime(this.around.clock, graceMs, () => work).catch(() => undefined); // the grace is over
    const left = [...this.#holds].map(({ lease }) => lease);
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
    const key = wanted.qualifiedKey;
    const turns = this.#queues.get(key) ?? this.#newQueue(key);
    if (!turns.tryTake()) await this.#waitForTurn(turns, key, wait);
    const leave = (): void => {
      turns.pass();
      if (turns.idle) this.#queues.delete(key);
    };
    try {
      return await this.#contend(wanted, wait, leave);
    } catch (error) {
      leave();
      throw error;
    }
  }

  #newQueue(key: string): TurnQueue {
    const turns = new TurnQueue(this.around.clock);
    this.#queues.set(key, turns);
    return turns;
  }

  async #waitForTurn(turns: TurnQueue, key: string, wait: AcquireWait): Promise<void> {
    const end = await turns.take(wait.limit);
    if (end === 'aborted') wait.refuseIfAborted();
    if (end !== 'woken') throw wait.error({ kind: 'busy', retryAfterMs: this.#remainingMs(key) });
  }

  async #contend(wanted: Wanted, wait: AcquireWait, leave: () => void): Promise<Hold> {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      const answer = await this.#try(wanted, wait, leave);
      if (answer instanceof Hold) return answer;
      wait.refuseIfAborted();
      if (wait.remainingMs === 0) throw wait.error(answer);
      const holderEndsMs = answer.kind === 'busy' ? (answer.retryAfterMs ?? Infinity) + 1 : Infinity;
      const timeoutMs = Math.min(jittered(pauseMs), holderEndsMs, wait.remainingMs);
      await pause(this.around.clock, { ...wait.limit, timeoutMs });
      wait.refuseIfAborted();
    }
  }

  /** One try with an owner id of its own. Unless the answer was a clear no, the store is told to forget that id. */
  async #try(wanted: Wanted, wait: AcquireWait, leave: () => void): Promise<Hold | Busy | Unanswered> {
    const { qualifiedKey: key, ttlMs } = wanted;
    const claim: Claim = { key, ownerId: randomBytes(16).toString('hex'), ttlMs };
    const timeoutMs = wait.beginTry();
    try {
      const answer = await withinTime(
        this.around.clock,
        timeoutMs,
        () => this.store.tryAcquire(claim, timeoutMs),
        wait.ownSignals,
      );
      if (answer.kind === 'busy') return answer;
      if (wait.triedForMs >= ttlMs) throw new NoAnswer(ttlMs); // this process slept through its own lease
      return this.#grant(wanted, claim, answer.token, wait, leave);
    } catch (cause) {
      this.around.orphans.giveBack(this.store, { key, ownerId: claim.ownerId, keepForMs: 0 }, ttlMs);
      this.#emit(wanted, { type: 'acquire-unanswered', cause });
      return { kind: 'unanswered', cause };
    }
  }

  #grant(wanted: Wanted, claim: Claim, token: number, wait: AcquireWait, leave: () => void): Hold {
    const { clock, events, orphans } = this.around;
    const hold = new Hold(
      { ...wanted, ownerId: claim.ownerId, token, sentAt: wait.triedAt },
      { clock, events, orphans, lockStore: this.store, renewals: this.#renewals },
      wanted.endsWith,
      () => {
        this.#holds.delete(hold);
        leave();
        if (this.#holds.size === 0) this.#onIdle?.();
      },
    );
    this.#holds.add(hold);
    this.#emit(wanted, { type: 'acquired', token, waitedMs: wait.waitedMs, attempts: wait.tries });
    return hold;
  }

  /** What this process knows of the present hold, for a caller that never got to ask the store. */
  #remainingMs(qualifiedKey: string): number | null {
    for (const { lease } of this.#holds) if (lease.qualifiedKey === qualifiedKey) return lease.remainingMs;
    return null;
  }

  #emit({ key, template, store }: Wanted, event: LockHappening): void {
    this.around.events.emit({ key, template, store, ...event });
  }
}
