import type { Clock } from './clock.js';
import type { LockStore, ReleaseAnswer, ReleaseRequest } from './lock-store.js';
import { commandTimeoutMs } from './renewals.js';
import { jittered, pause, withinTime } from './wait.js';

const FIRST_DELAY_MS = 20;
const LONGEST_DELAY_MS = 1_000;

/** What is to be given back, and when the store will have forgotten it by itself. */
interface Orphan {
  readonly request: ReleaseRequest;
  readonly ttlMs: number;
  readonly goneAtMs: number;
}

/**
 * Gives back grants that nobody holds: the acquire or the release went unanswered, so the store may keep the key for
 * an owner that is gone. Tries until the store answers or the grant has run out by itself.
 *
 * Those of one key queue up: an outage with many tries must not end in a storm of releases.
 */
export class Orphans {
  readonly #queues = new Map<LockStore, Map<string, Orphan[]>>();
  readonly #pending = new Set<Promise<void>>();
  readonly #giveUp = new AbortController();

  constructor(private readonly clock: Clock) {}

  /** One release within its time. Unanswered, it rejects and goes on behind. */
  async release(store: LockStore, request: ReleaseRequest, ttlMs: number): Promise<ReleaseAnswer> {
    const timeoutMs = commandTimeoutMs(ttlMs);
    try {
      return await withinTime(this.clock, timeoutMs, () => store.release(request, timeoutMs));
    } catch (cause) {
      this.giveBack(store, request, ttlMs);
      throw cause;
    }
  }

  giveBack(store: LockStore, request: ReleaseRequest, ttlMs: number): void {
    if (this.#giveUp.signal.aborted) return;
    const keys = this.#queues.get(store) ?? new Map<string, Orphan[]>();
    this.#queues.set(store, keys);
    const orphan: Orphan = { request, ttlMs, goneAtMs: this.clock.monotonicMs() + ttlMs };
    const queue = keys.get(request.key);
    if (queue) return void queue.push(orphan);
    const begun = [orphan];
    keys.set(request.key, begun);
    const done = this.#insist(store, begun, () => keys.delete(request.key));
    this.#pending.add(done);
    void done.then(() => this.#pending.delete(done));
  }

  /** Lets running attempts finish for `timeoutMs` at the most, then stops. Never rejects. */
  async close(timeoutMs: number): Promise<void> {
    const settled = (): Promise<unknown> => Promise.allSettled([...this.#pending]);
    await withinTime(this.clock, timeoutMs, settled).catch(() => undefined); // too slow: given up below
    this.#giveUp.abort();
    await settled();
  }

  async #insist(store: LockStore, queue: Orphan[], onEnd: () => void): Promise<void> {
    const signals = [this.#giveUp.signal];
    let delayMs = FIRST_DELAY_MS;
    for (let orphan = queue[0]; orphan && !this.#giveUp.signal.aborted; orphan = queue[0]) {
      if (orphan.goneAtMs <= this.clock.monotonicMs() || (await this.#released(store, orphan, signals))) {
        queue.shift();
        delayMs = FIRST_DELAY_MS;
      } else {
        await pause(this.clock, { timeoutMs: jittered(delayMs), signals });
        delayMs = Math.min(delayMs * 2, LONGEST_DELAY_MS);
      }
    }
    onEnd(); // before anything else can run, or an orphan would join a queue that nobody serves
  }

  async #released(
    store: LockStore,
    { request, ttlMs }: Orphan,
    signals: readonly AbortSignal[],
  ): Promise<boolean> {
    const timeoutMs = commandTimeoutMs(ttlMs);
    try {
      await withinTime(this.clock, timeoutMs, () => store.release(request, timeoutMs), { signals });
      return true;
    } catch {
      return false; // the store is still away, and the grant ends by itself: until then it is worth another try
    }
  }
}
