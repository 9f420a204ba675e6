import type { LockStore } from 'nestjs-distributed-lock';

/** What a waiter hears of the releases of a key, and how often it was woken. */
interface CountedWatch {
  readonly hears: boolean;
  readonly wakes: number;
  stop(): void;
}

/** @throws that the store cannot tell of releases */
export function watchOf(store: LockStore, key: string): CountedWatch {
  let wakes = 0;
  const watch = store.watch?.(key, () => (wakes += 1));
  if (!watch) throw new Error('this store cannot tell');
  return {
    get hears() {
      return watch.hears;
    },
    get wakes() {
      return wakes;
    },
    stop: () => watch.stop(),
  };
}
