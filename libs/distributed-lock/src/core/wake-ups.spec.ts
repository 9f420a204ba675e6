import { lockBench, outcomeOf, settled, type LockBench } from '../../test/lock-bench.js';
import type { Busy, LockStore } from './index.js';

const KEY = 'invoice:1';
const BUSY: Busy = { kind: 'busy', retryAfterMs: null };

interface WatchBench extends LockBench {
  readonly watched: string[];
  hears: boolean;
  wake(): void;
  stopped: number;
}

/** A bench whose store tells when a key may be free. */
function watchBench(): WatchBench {
  const ears = new Set<() => void>();
  const watched: string[] = [];
  const bench = Object.assign(lockBench(), { watched, hears: true, stopped: 0, wake: ring });
  function ring(): void {
    for (const ear of ears) ear();
  }
  const watch: LockStore['watch'] = (key, wake) => {
    watched.push(key);
    ears.add(wake);
    return {
      get hears() {
        return bench.hears;
      },
      stop: () => {
        ears.delete(wake);
        bench.stopped += 1;
      },
    };
  };
  Object.assign(bench.store, { watch });
  return bench;
}

describe('a store that says when a key may be free', () => {
  it('wakes who waits for it at once, and is asked no more meanwhile', async () => {
    const bench = watchBench();
    const { clock, store, locks } = bench;
    store.onAcquire = () => Promise.resolve(BUSY);
    const acquiring = locks.acquire(KEY, { waitMs: 5_000 });
    await clock.advance(900);
    expect(store.acquires).toHaveLength(1);
    store.onAcquire = (_, forward) => forward();
    bench.wake();
    await (await acquiring).release();
    expect(store.acquires).toHaveLength(2);
    expect(bench.watched).toEqual([KEY]);
    expect(bench.stopped).toBe(1);
  });

  it('is not watched by those who get the key at once, or ask only once', async () => {
    const bench = watchBench();
    const { store, locks } = bench;
    await (await locks.acquire(KEY)).release();
    store.onAcquire = () => Promise.resolve(BUSY);
    expect(await locks.tryAcquire(KEY)).toBeNull();
    expect(bench.watched).toEqual([]);
  });

  it('is asked once more when it woke somebody whose try was under way', async () => {
    const bench = watchBench();
    const { clock, store, locks } = bench;
    store.onAcquire = () => {
      if (store.acquires.length === 2) bench.wake(); // freed after it looked, and before its answer arrived
      return Promise.resolve(BUSY);
    };
    const call = outcomeOf(locks.acquire(KEY, { waitMs: 500 }));
    await settled();
    bench.wake();
    await settled();
    expect(store.acquires).toHaveLength(3);
    await clock.advance(500);
    expect(await call).toMatchObject({ code: 'LOCK_TIMEOUT' });
    expect(bench.stopped).toBe(1);
  });

  it('may lose a wake-up: the key is asked for within two seconds all the same', async () => {
    const { clock, store, locks } = watchBench();
    store.onAcquire = () => Promise.resolve(store.acquires.length < 3 ? BUSY : { kind: 'granted', token: 1 });
    const acquiring = locks.acquire(KEY, { waitMs: 60_000 });
    await clock.advance(4_000);
    await (await acquiring).release();
  });

  it('is asked in short intervals while it hears nothing, and while it does not answer', async () => {
    const bench = watchBench();
    const { clock, store, locks } = bench;
    store.onAcquire = () => Promise.resolve(BUSY);
    bench.hears = false;
    const deaf = outcomeOf(locks.acquire(KEY, { waitMs: 1_000 }));
    await clock.advance(1_000);
    await deaf;
    expect(store.acquires.length).toBeGreaterThanOrEqual(8);
    bench.hears = true;
    store.acquires.length = 0;
    store.onAcquire = () => Promise.reject(new Error('reset'));
    const away = outcomeOf(locks.acquire(KEY, { waitMs: 1_000 }));
    await clock.advance(1_000);
    await away;
    expect(store.acquires.length).toBeGreaterThanOrEqual(8);
  });

  it('harms nobody when it cannot be watched', async () => {
    const { clock, store, locks } = lockBench();
    const watch = (): never => {
      throw new Error('no more connections');
    };
    Object.assign(store, { watch });
    store.onAcquire = (_, forward) => (store.acquires.length < 3 ? Promise.resolve(BUSY) : forward());
    const acquiring = locks.acquire(KEY, { waitMs: 5_000 });
    await clock.advance(1_000);
    await (await acquiring).release();
  });
});
