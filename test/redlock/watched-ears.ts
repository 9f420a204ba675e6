import { systemClock, type Clock, type KeyWatch, type LockStore } from 'nestjs-distributed-lock';

/** Its pauses are a thousand times as long: whoever waits by it asks when it is woken, and never by itself. */
export const PATIENT_CLOCK: Clock = {
  ...systemClock,
  schedule: (delayMs, run) => systemClock.schedule(delayMs * 1_000, run),
};

/** What one waiter hears of releases, and whether it has looked since it hears. */
export class WatchedEars {
  #askedSince = false;
  #hears = false;

  constructor(store: LockStore) {
    const tryAcquire = store.tryAcquire.bind(store);
    const watch = store.watch?.bind(store);
    store.tryAcquire = async (claim, timeoutMs) => {
      const heard = this.#hears;
      const answer = await tryAcquire(claim, timeoutMs);
      this.#askedSince ||= heard;
      return answer;
    };
    store.watch = (key, wake): KeyWatch => {
      const heard = watch?.(key, () => {
        this.#hears = heard?.hears ?? false;
        wake();
      });
      return heard ?? { hears: false, stop: () => undefined };
    };
  }

  /** It was told that the key is taken after it had begun to hear: from now on only a release makes it ask again. */
  get haveAskedSinceTheyHear(): boolean {
    return this.#askedSince;
  }

  reset(): void {
    this.#askedSince = this.#hears = false;
  }
}
