import { LockService, type LockEvent, type LockServiceOptions } from '../src/core/index.js';
import { ManualClock } from '../src/testing/manual-clock.js';
import { ScriptedStore } from './scripted-store.js';

export { ManualClock };

export interface LockBench {
  readonly clock: ManualClock;
  readonly store: ScriptedStore;
  readonly locks: LockService;
  readonly events: LockEvent[];
}

/** A lock service on a scripted store; both live by one clock that the test moves. */
export function lockBench(options: Partial<LockServiceOptions> = {}): LockBench {
  const clock = new ManualClock();
  const store = new ScriptedStore(clock);
  const locks = new LockService({ stores: { default: store }, clock, ...options });
  const events: LockEvent[] = [];
  locks.events.subscribe((event) => void events.push(event));
  return { clock, store, locks, events };
}

/** A promise that a test settles by hand. */
export interface Gate<T = void> {
  readonly passed: Promise<T>;
  open(value: T): void;
}

export function gate<T = void>(): Gate<T> {
  let open!: (value: T) => void;
  const passed = new Promise<T>((resolve) => (open = resolve));
  return { passed, open };
}

/** What a promise came to, so that a rejection can be awaited later without being unhandled meanwhile. */
export function outcomeOf<T>(promise: Promise<T>): Promise<T | Error> {
  return promise.catch((error: Error) => error);
}

/** A turn of the event loop: long enough for every chain of promises that waits for no timer. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
