import type { Clock } from './clock.js';
import type { KeyWatch, LockStore } from './lock-store.js';
import { startWait, type Wait, type WaitLimit } from './wait.js';

/** One caller's pauses between two tries, which the store may end when the key may have become free. */
export class WakeUps {
  readonly #watch: KeyWatch | undefined;
  #wait: Wait | undefined;
  /** A wake-up that came while the caller was not waiting, but trying: its answer may be older. */
  #missed = false;

  constructor(store: LockStore, key: string) {
    try {
      this.#watch = store.watch?.(key, () => this.#wake());
    } catch {
      // A hint that is not to be had: asking in short intervals does the same.
    }
  }

  /** True while a wake-up would be heard; asking all the time is then not needed. */
  get heard(): boolean {
    return this.#watch?.hears ?? false;
  }

  /** Resolves at the limit, or when the store has woken the caller since the last pause. */
  pause(clock: Clock, limit: WaitLimit): Promise<void> {
    if (this.#missed) {
      this.#missed = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      this.#wait = startWait(clock, limit, () => {
        this.#wait = undefined;
        resolve();
      });
    });
  }

  stop(): void {
    this.#watch?.stop();
  }

  #wake(): void {
    if (this.#wait?.wake() !== true) this.#missed = true;
  }
}
