import {
  commandTimeoutMs,
  pause,
  reliableMs,
  runOutside,
  withinTime,
  type Clock,
  type LossReason,
  type Timer,
} from '../core/index.js';
import type { Attempt } from './attempt.js';
import { IdempotencyLeaseLostError } from './idempotency-errors.js';
import type { IdempotencyHappening } from './idempotency-events.js';
import type { Claimed, IdempotencyStore, RecordEnding } from './idempotency-store.js';
import { furtherKey } from './inside-attempt.js';
import type { RecordIdentity } from './record-identity.js';

/** What everything about one call works with. */
export interface CallContext {
  readonly store: IdempotencyStore;
  readonly clock: Clock;
  readonly identity: RecordIdentity;
  readonly leaseMs: number;
  readonly keepMs: number;
  readonly tell: (happening: IdempotencyHappening) => void;
}

export type SettleAnswer = 'settled' | 'refused' | 'unanswered';

/** A renewal that got no answer is sent again after this share of the lease, and never sooner than the floor. */
const RETRY_SHARE = 1 / 15;
const RETRY_FLOOR_MS = 20;
const FIRST_SETTLE_PAUSE_MS = 50;

/**
 * A record that this call owns: its heartbeat, its deadline, and how it is left.
 *
 * Past the deadline another attempt may have begun, so the body is told; the store decides whether it really has.
 */
export class OwnedRecord implements Attempt {
  readonly #lost = new AbortController();
  #deadlineMs: number;
  #loss: LossReason | undefined;
  #beat: Timer | undefined;
  #end: Timer | undefined;
  #left = false;
  #renews = true;

  constructor(
    private readonly context: CallContext,
    readonly ownerId: string,
    private readonly claimed: Claimed,
    sentAtMs: number,
  ) {
    this.#deadlineMs = sentAtMs + reliableMs(context.leaseMs);
    this.#armEnd();
    this.#beatIn(context.leaseMs / 3);
  }

  get id(): string {
    return this.context.identity.id;
  }

  get key(): string {
    return this.context.identity.key;
  }

  get idempotencyKey(): string {
    this.assertOwned();
    return this.context.identity.idempotencyKey;
  }

  idempotencyKeyFor(label: string): string {
    return furtherKey(this.idempotencyKey, label);
  }

  /** What is left of the lease as far as it can be relied on. */
  get remainingMs(): number {
    return Math.max(0, this.#deadlineMs - this.context.clock.monotonicMs());
  }

  get attempt(): number {
    return this.claimed.attempt;
  }

  get fence(): number {
    return this.claimed.fence;
  }

  get takenOver(): boolean {
    return this.claimed.takenOver;
  }

  get signal(): AbortSignal {
    this.#check();
    return this.#lost.signal;
  }

  /** Reads the clock: no timer fires while the event loop is blocked or the process is stopped. */
  assertOwned(): void {
    this.#check();
    if (this.#loss) throw this.lossOf({});
  }

  lossOf(result: { readonly value?: unknown; readonly cause?: unknown }): IdempotencyLeaseLostError {
    const reason = this.#loss ?? 'taken-over';
    return new IdempotencyLeaseLostError(
      `The record of "${this.key}" was lost while its attempt ${this.attempt} was at work (${reason}): another may be running. ` +
        'What this one did is unknown; send the same key again to learn the answer.',
      { ...result, key: this.key, store: this.context.store.kind, reason },
    );
  }

  /**
   * Ends the heartbeat and leaves the record. Tries again until the lease is over: a finished body whose record is not
   * settled would be taken for a crashed one.
   */
  async settle(ending: RecordEnding): Promise<SettleAnswer> {
    this.leave();
    const { clock, leaseMs, store } = this.context;
    const timeoutMs = commandTimeoutMs(leaseMs);
    const untilMs = Math.max(this.#deadlineMs, clock.monotonicMs() + timeoutMs);
    let unanswered = false;
    for (let pauseMs = FIRST_SETTLE_PAUSE_MS; ; pauseMs *= 2) {
      try {
        const send = (): Promise<SettleAnswer> => store.settle(this.id, this.ownerId, ending, timeoutMs);
        const settled = (await withinTime(clock, timeoutMs, send)) === 'settled';
        // What was sent before may have been carried out, and only a finished record remembers its owner.
        return settled ? 'settled' : unanswered && ending.kind !== 'done' ? 'unanswered' : 'refused';
      } catch (cause) {
        unanswered = true;
        this.context.tell({ type: 'store-unanswered', step: 'settle', cause });
      }
      if (clock.monotonicMs() + pauseMs >= untilMs) return 'unanswered';
      await pause(clock, { timeoutMs: pauseMs, signals: [] });
    }
  }

  /** Ends the heartbeat; the deadline stays where it is. */
  stopRenewing(): void {
    this.#renews = false;
    this.#beat?.cancel();
  }

  /** Ends heartbeat and timers. Twice is harmless. */
  leave(): void {
    this.#left = true;
    this.#beat?.cancel();
    this.#end?.cancel();
  }

  #check(): void {
    if (!this.#left && this.context.clock.monotonicMs() >= this.#deadlineMs) this.#lose('expired');
  }

  #lose(reason: LossReason): void {
    if (this.#left || this.#loss) return;
    this.#loss = reason;
    this.#beat?.cancel();
    this.#end?.cancel();
    this.context.tell({ type: 'lease-lost', attempt: this.attempt, reason });
    this.#lost.abort(this.lossOf({}));
  }

  #armEnd(): void {
    this.#end?.cancel();
    const { clock } = this.context;
    const delayMs = Math.max(0, this.#deadlineMs - clock.monotonicMs());
    this.#end = clock.schedule(delayMs, () => runOutside(() => this.#check()));
  }

  #beatIn(delayMs: number): void {
    if (this.#left || this.#loss || !this.#renews) return;
    this.#beat = this.context.clock.schedule(delayMs, () => runOutside(() => void this.#renew()));
  }

  /** The next one is planned when this one has been answered or given up, so that no two overlap. */
  async #renew(): Promise<void> {
    this.#check();
    if (this.#loss || !this.#renews) return;
    const { store, clock, leaseMs, keepMs } = this.context;
    const { id, ownerId } = this;
    const sentAtMs = clock.monotonicMs();
    const timeoutMs = commandTimeoutMs(leaseMs);
    try {
      const send = (): Promise<string> => store.renew({ id, ownerId, leaseMs, keepMs }, timeoutMs);
      const answer = await withinTime(clock, timeoutMs, send);
      if (answer === 'renewed') this.#renewed(sentAtMs);
      else this.#lose('taken-over');
    } catch (cause) {
      // Unknown is neither yes nor no: the deadline, which did not move, decides.
      if (!this.#left) this.context.tell({ type: 'store-unanswered', step: 'renew', cause });
      this.#beatIn(Math.max(leaseMs * RETRY_SHARE, RETRY_FLOOR_MS));
    }
  }

  #renewed(sentAtMs: number): void {
    if (this.#left || this.#loss) return;
    this.#deadlineMs = sentAtMs + reliableMs(this.context.leaseMs);
    this.#armEnd();
    this.#beatIn(this.context.leaseMs / 3);
  }
}
