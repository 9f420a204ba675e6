import type { Clock, Timer } from '../core/index.js';

interface Scheduled {
  readonly atMs: number;
  readonly run: () => void;
}

/**
 * A clock that moves only when told to: both readings start at given values, timers fire in order while it advances.
 *
 * Give it to `LockService`, to the module and to `memoryStore()`, so that the lease and the store agree on the time.
 */
export class ManualClock implements Clock {
  #monotonicMs = 0;
  #wallMs: number;
  readonly #scheduled = new Set<Scheduled>();

  constructor(wallMs = 1_700_000_000_000) {
    this.#wallMs = wallMs;
  }

  monotonicMs(): number {
    return this.#monotonicMs;
  }

  wallMs(): number {
    return this.#wallMs;
  }

  schedule(delayMs: number, run: () => void): Timer {
    const scheduled = { atMs: this.#monotonicMs + delayMs, run };
    this.#scheduled.add(scheduled);
    return { cancel: () => void this.#scheduled.delete(scheduled) };
  }

  /** Timers that are armed: 0 once everything has ended. */
  get armed(): number {
    return this.#scheduled.size;
  }

  /** Moves both clocks on and fires what falls due, letting promises settle in between. */
  async advance(ms: number): Promise<void> {
    const untilMs = this.#monotonicMs + ms;
    await settle();
    for (let next = this.#next(untilMs); next; next = this.#next(untilMs)) {
      this.#scheduled.delete(next);
      this.block(Math.max(0, next.atMs - this.#monotonicMs));
      next.run();
      await settle();
    }
    this.block(untilMs - this.#monotonicMs);
  }

  /** Moves both clocks on while no timer fires, as under a blocked event loop or a stopped process. */
  block(ms: number): void {
    this.#monotonicMs += ms;
    this.#wallMs += ms;
  }

  /** Steps the wall clock alone: a suspended machine (forward), or a correction (either way). */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  #next(untilMs: number): Scheduled | undefined {
    const due = [...this.#scheduled].filter(({ atMs }) => atMs <= untilMs);
    return due.sort((a, b) => a.atMs - b.atMs)[0];
  }
}

/** Taken before anybody can put a fake in its place. */
const nextTurn = globalThis.setImmediate;

/** A turn of the event loop: long enough for chains of promises that wait for no timer. */
function settle(): Promise<void> {
  return new Promise((resolve) => nextTurn(resolve));
}
