import { AsyncLocalStorage } from 'node:async_hooks';

import type { Clock } from './clock.js';
import { TurnQueue } from './turn-queue.js';
import type { WaitEnd, WaitLimit } from './wait.js';

/**
 * One run of a body under a hold. A nested call on the same key opens a child of the section it starts in.
 *
 * Children of one section take turns, because `Promise.all` inside a hold must not share its critical section. A section
 * is complete when its body and all its children have ended; only then does its turn pass on, and only with the root
 * section does the hold end, so a nested call that nobody awaits never runs unprotected.
 */
export class Section<Hold> {
  /** Its own body and its open children. */
  #running = 1;
  readonly #turns: TurnQueue;

  constructor(
    readonly hold: Hold,
    private readonly clock: Clock,
    private readonly onComplete: () => void,
    private readonly host: Section<Hold> | null = null,
  ) {
    this.#turns = new TurnQueue(clock);
  }

  get complete(): boolean {
    return this.#running === 0;
  }

  /** True once all work of the hold has ended. */
  get over(): boolean {
    return this.host ? this.host.over : this.complete;
  }

  /** Waits for its turn among its siblings, and keeps the hold alive meanwhile. */
  async openChild(limit: WaitLimit): Promise<Section<Hold> | Exclude<WaitEnd, 'woken'>> {
    const host = this.#nearestOpen();
    host.begin();
    const end = await host.#turns.take(limit);
    if (end !== 'woken') {
      host.end();
      return end;
    }
    const passTurn = (): void => {
      host.#turns.pass();
      host.end();
    };
    return new Section(host.hold, this.clock, passTurn, host);
  }

  /** Counts one more body that runs in this very section, without a turn. Each needs its {@link end}. */
  begin(): void {
    this.#running += 1;
  }

  end(): void {
    this.#running -= 1;
    if (this.complete) this.onComplete();
  }

  /** A context can outlive its section: its calls then belong to the nearest section that is still open. */
  #nearestOpen(): Section<Hold> {
    // eslint-disable-next-line @typescript-eslint/no-this-alias -- the start of a walk outwards
    let section: Section<Hold> = this;
    while (section.complete && section.host) section = section.host;
    return section;
  }
}

/** The sections that a call chain is inside of, innermost first. */
export interface Frame<Hold> {
  readonly section: Section<Hold>;
  readonly outer: Frame<Hold> | undefined;
}

const STORAGE = Symbol.for('nestjs-distributed-lock/context');
const shared = globalThis as { [STORAGE]?: AsyncLocalStorage<Frame<unknown>> };

/** One per process: with two copies of the package, both still see one call chain. */
const storage = (shared[STORAGE] ??= new AsyncLocalStorage<Frame<unknown>>());

/** Runs `work` inside `section`. Never `enterWith`: that would leak the hold into the caller's own chain. */
export function runInside<T>(section: Section<unknown>, work: () => T): T {
  return storage.run({ section, outer: livingFrame(storage.getStore()) }, work);
}

/** Leaves out the holds that are over: a chain that starts its own next round would grow for ever otherwise. */
function livingFrame(frame: Frame<unknown> | undefined): Frame<unknown> | undefined {
  if (!frame) return undefined;
  const outer = livingFrame(frame.outer);
  if (frame.section.over) return outer;
  return outer === frame.outer ? frame : { section: frame.section, outer };
}

/** Runs `work` in a chain that is inside of no section. */
export function runOutside<T>(work: () => T): T {
  return storage.exit(work);
}

export function currentFrame(): Frame<unknown> | undefined {
  return storage.getStore();
}
