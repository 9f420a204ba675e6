import { readInstant, type Clock, type Instant, type Timer } from './clock.js';
import type { Claim, LockStore, RenewalAnswer } from './lock-store.js';
import { withinTime } from './wait.js';

/** What the schedule needs of a lease. */
export interface Renewable {
  readonly claim: Claim;
  /** Monotonic time at which the next renewal should be sent. */
  readonly renewalDueAtMs: number;
  /** False when there is nothing left to renew. */
  renewalSent(): boolean;
  /** `ttlMs` is the one that was sent: it may have been changed since. */
  renewalAnswered(answer: RenewalAnswer, sentAt: Instant, ttlMs: number): void;
  renewalUnanswered(cause: unknown): void;
}

const BATCH_SIZE = 100;
/** Leases that are due within this share of their ttl go out together: a thousand leases, ten commands. */
const TOGETHER_SHARE = 1 / 15;

/** How long one renewal or release may take before it counts as unanswered: a third of the ttl leaves two more tries. */
export function commandTimeoutMs(ttlMs: number): number {
  return Math.min(Math.max(ttlMs / 3, 20), 5_000);
}

/** Renews the leases of one store in batches, each at a third of its ttl and never twice at once. */
export class Renewals {
  readonly #idle = new Set<Renewable>();
  readonly #inFlight = new Map<Renewable, Promise<void>>();
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
    this.#inFlight.delete(lease);
    if (this.#idle.size === 0) this.#disarm();
  }

  /** Settles when the store has answered or was given up on; never rejects. Joins a renewal that is under way. */
  renewNow(lease: Renewable): Promise<void> {
    const underWay = this.#inFlight.get(lease);
    if (underWay) return underWay;
    return this.#idle.has(lease) ? this.#send([lease]) : Promise.resolve();
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
    this.#timer = this.clock.schedule(Math.max(0, dueAtMs - this.clock.monotonicMs()), () => this.#sendDue());
  }

  #disarm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#timerAtMs = Infinity;
  }

  #sendDue(): void {
    this.#disarm();
    const nowMs = this.clock.monotonicMs();
    const due: Renewable[] = [];
    let nextDueAtMs = Infinity;
    for (const lease of this.#idle) {
      if (lease.renewalDueAtMs - lease.claim.ttlMs * TOGETHER_SHARE <= nowMs) due.push(lease);
      else nextDueAtMs = Math.min(nextDueAtMs, lease.renewalDueAtMs);
    }
    for (let i = 0; i < due.length; i += BATCH_SIZE) void this.#send(due.slice(i, i + BATCH_SIZE));
    if (nextDueAtMs < Infinity) this.#wakeBy(nextDueAtMs);
  }

  #send(leases: readonly Renewable[]): Promise<void> {
    const live = leases.filter((lease) => lease.renewalSent());
    if (live.length === 0) return Promise.resolve();
    const answered = this.#exchange(live);
    for (const lease of live) {
      this.#idle.delete(lease);
      this.#inFlight.set(lease, answered);
    }
    return answered;
  }

  async #exchange(leases: readonly Renewable[]): Promise<void> {
    const sentAt = readInstant(this.clock);
    const claims = leases.map((lease) => lease.claim);
    const timeoutMs = Math.min(...claims.map((claim) => commandTimeoutMs(claim.ttlMs)));
    let tell: (lease: Renewable, i: number) => void;
    try {
      const answers = await withinTime(this.clock, timeoutMs, () => this.store.renew(claims, timeoutMs));
      tell = (lease, i) => lease.renewalAnswered(exactly(answers[i]), sentAt, (claims[i] as Claim).ttlMs);
    } catch (cause) {
      // Unknown is neither yes nor no: the deadlines stay where they are and decide.
      tell = (lease) => lease.renewalUnanswered(cause);
    }
    leases.forEach((lease, i) => {
      if (!this.#inFlight.delete(lease)) return; // removed while the renewal was under way
      this.add(lease);
      tell(lease, i);
      if (this.#idle.has(lease)) this.#wakeBy(lease.renewalDueAtMs);
    });
  }
}

/** Anything but the exact word of success is a loss: a driver that answers `'0'` must not keep a lease alive. */
function exactly(answer: unknown): RenewalAnswer {
  return answer === 'renewed' ? 'renewed' : 'lost';
}
