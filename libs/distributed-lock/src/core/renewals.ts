import { readInstant, type Clock, type Instant, type Timer } from './clock.js';
import type { Claim, LockStore, RenewalAnswer } from './lock-store.js';
import { runOutside } from './section.js';
import { renewalAnswers } from './store-answers.js';
import { withinTime } from './wait.js';

/** What the schedule needs of a lease. */
export interface Renewable {
  readonly claim: Claim;
  /** Monotonic time at which the next renewal has to be sent. */
  readonly renewalDueAtMs: number;
  /** False when there is nothing left to renew. */
  renewalSent(): boolean;
  /** `ttlMs` is the one that was sent: it may have been changed since. */
  renewalAnswered(answer: RenewalAnswer, sentAt: Instant, ttlMs: number): void;
  renewalUnanswered(cause: unknown): void;
}

const BATCH_SIZE = 100;
/** Leases that fall due within this share of their ttl go together with one that is due: a thousand, ten commands. */
const TOGETHER_SHARE = 1 / 15;

/** How long one renewal or release may take before it counts as unanswered: a third of the ttl leaves two more tries. */
export function commandTimeoutMs(ttlMs: number): number {
  return Math.min(Math.max(ttlMs / 3, 20), 5_000);
}

/** Renews the leases of one store in batches, each at a third of its ttl and never twice at once. */
export class Renewals {
  readonly #idle = new Set<Renewable>();
  readonly #inFlight = new Map<Renewable, Promise<void>>();
  /** Ends the wait for answers that concern nobody any more, with its timers. */
  #unwanted = new AbortController();
  #timer: Timer | undefined;
  #timerAtMs = Infinity;

  constructor(
    private readonly store: LockStore,
    private readonly clock: Clock,
  ) {}

  add(lease: Renewable): void {
    this.#idle.add(lease);
    this.#wakeBy(lease.renewalDueAtMs);
  }

  remove(lease: Renewable): void {
    this.#idle.delete(lease);
    if (this.#inFlight.delete(lease) && this.#inFlight.size === 0) {
      this.#unwanted.abort();
      this.#unwanted = new AbortController();
    }
    if (this.#idle.size === 0) this.#disarm();
  }

  /** Settles when the store has answered or was given up on; never rejects. Joins a renewal that is under way. */
  async renewNow(lease: Renewable): Promise<void> {
    if (this.#idle.has(lease)) this.#send([lease]);
    await this.#inFlight.get(lease);
  }

  /** As {@link renewNow}, but does not settle for a renewal that was sent earlier, with other terms. */
  async renewAfresh(lease: Renewable): Promise<void> {
    await this.#inFlight.get(lease);
    await this.renewNow(lease);
  }

  #wakeBy(dueAtMs: number): void {
    if (dueAtMs >= this.#timerAtMs) return;
    this.#timer?.cancel();
    this.#timerAtMs = dueAtMs;
    const delayMs = Math.max(0, dueAtMs - this.clock.monotonicMs());
    this.#timer = this.clock.schedule(delayMs, () => runOutside(() => this.#sendDue()));
  }

  #disarm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#timerAtMs = Infinity;
  }

  #sendDue(): void {
    this.#disarm();
    const nowMs = this.clock.monotonicMs();
    const { renewsTogether = BATCH_SIZE } = this.store;
    for (const ready of this.#readyAt(nowMs))
      for (const batch of batchesOf(ready, nowMs, renewsTogether)) this.#send(batch);
    let nextDueAtMs = Infinity;
    for (const lease of this.#idle) nextDueAtMs = Math.min(nextDueAtMs, lease.renewalDueAtMs);
    if (nextDueAtMs < Infinity) this.#wakeBy(nextDueAtMs);
  }

  /** Grouped by how long they can wait for an answer: a lease in a hurry must not give up the command of a patient one. */
  #readyAt(nowMs: number): Iterable<Renewable[]> {
    const groups = new Map<number, Renewable[]>();
    for (const lease of this.#idle) {
      const { ttlMs } = lease.claim;
      if (lease.renewalDueAtMs - ttlMs * TOGETHER_SHARE > nowMs) continue;
      const magnitude = Math.floor(Math.log2(ttlMs));
      const group = groups.get(magnitude);
      if (group) group.push(lease);
      else groups.set(magnitude, [lease]);
    }
    return groups.values();
  }

  #send(leases: readonly Renewable[]): void {
    // Telling a lease can end another one, through a listener, and can send it, when the clocks turn out to disagree.
    const live = leases.filter((lease) => lease.renewalSent()).filter((lease) => this.#idle.has(lease));
    if (live.length === 0) return;
    const answered = this.#exchange(live);
    for (const lease of live) {
      this.#idle.delete(lease);
      this.#inFlight.set(lease, answered);
    }
  }

  async #exchange(leases: readonly Renewable[]): Promise<void> {
    const sentAt = readInstant(this.clock);
    const claims = leases.map((lease) => lease.claim);
    const timeoutMs = Math.min(...claims.map((claim) => commandTimeoutMs(claim.ttlMs)));
    let tell: (lease: Renewable, i: number) => void;
    try {
      const command = (): Promise<readonly RenewalAnswer[]> => this.store.renew(claims, timeoutMs);
      const said = await withinTime(this.clock, timeoutMs, command, { signals: [this.#unwanted.signal] });
      const answers = renewalAnswers(said, claims.length);
      tell = (lease, i) =>
        lease.renewalAnswered(answers[i] as RenewalAnswer, sentAt, (claims[i] as Claim).ttlMs);
    } catch (cause) {
      // Unknown is neither yes nor no: the deadlines stay where they are and decide.
      tell = (lease) => lease.renewalUnanswered(cause);
    }
    leases.forEach((lease, i) => {
      if (!this.#inFlight.delete(lease)) return; // removed while the renewal was under way
      this.#idle.add(lease);
      tell(lease, i);
      if (this.#idle.has(lease)) this.#wakeBy(lease.renewalDueAtMs);
    });
  }
}

/** Those that are due, and with them those that soon will be, as long as that costs no further command. */
function batchesOf(ready: Renewable[], nowMs: number, size: number): Renewable[][] {
  ready.sort((a, b) => a.renewalDueAtMs - b.renewalDueAtMs);
  const due = ready.filter((lease) => lease.renewalDueAtMs <= nowMs).length;
  const count = Math.min(ready.length, Math.ceil(due / size) * size);
  const batches: Renewable[][] = [];
  for (let i = 0; i < count; i += size) batches.push(ready.slice(i, Math.min(i + size, count)));
  return batches;
}
