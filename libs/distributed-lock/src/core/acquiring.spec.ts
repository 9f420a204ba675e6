import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { after, silence } from '../../test/scripted-store.js';

const KEY = 'invoice:1';

describe('callers of one key in one process', () => {
  it('enter in the order in which they came, one of them asking the store', async () => {
    const { store, locks } = lockBench();
    const order: number[] = [];
    const call = (i: number): Promise<void> =>
      locks.withLock(KEY, async () => {
        await settled();
        order.push(i);
      });
    await Promise.all(Array.from({ length: 50 }, (_, i) => call(i)));
    expect(order).toEqual(Array.from({ length: 50 }, (_, i) => i));
    expect(store.acquires).toHaveLength(50);
    expect(locks.busy).toBe(false);
  });

  it('pass over those that gave up, and lose no turn to them', async () => {
    const { clock, locks } = lockBench();
    const pause = gate();
    const aborter = new AbortController();
    const first = locks.withLock(KEY, () => pause.passed);
    const gaveUp = [
      outcomeOf(locks.withLock(KEY, { waitMs: 100 }, () => 'entered')),
      outcomeOf(locks.withLock(KEY, { signal: aborter.signal }, () => 'entered')),
    ];
    const last = locks.withLock(KEY, () => 'entered');
    await clock.advance(100);
    aborter.abort('gone');
    pause.open(); // in the same turn of the loop
    await first;
    expect(await last).toBe('entered');
    expect(await Promise.all(gaveUp)).toEqual([expect.objectContaining({ code: 'LOCK_TIMEOUT' }), 'gone']);
    expect(clock.armed).toBe(0);
    expect(locks.busy).toBe(false);
  });

  it('of different keys never wait for each other', async () => {
    const { locks } = lockBench();
    const pause = gate();
    const held = locks.withLock('invoice:1', () => pause.passed);
    expect(await locks.withLock('invoice:2', () => 'entered')).toBe('entered');
    pause.open();
    await held;
  });

  it('C131: leave empty maps behind after 10 000 different keys, and held ones are never thrown out', async () => {
    const { clock, locks } = lockBench();
    const held = await locks.acquire('held');
    for (let i = 0; i < 10_000; i++) await (await locks.acquire(`invoice:${i}`)).release();
    const again = locks.tryAcquire('held');
    await clock.advance(1);
    expect(await again).toBeNull();
    expect(clock.armed).toBe(2);
    await held.release();
    expect(locks.busy).toBe(false);
    expect(clock.armed).toBe(0);
  });

  it('leave nothing behind when they are refused before they began', async () => {
    const { locks, store } = lockBench();
    const call = locks.acquire(KEY, { signal: AbortSignal.abort('gone') });
    expect(await outcomeOf(call)).toBe('gone');
    expect(locks.busy).toBe(false);
    expect(store.acquires).toEqual([]);
  });
});

describe('a wait that its signal ends', () => {
  it.each([
    ['in the queue of this process', 'local'],
    ['between two tries', 'pause'],
    ['while the store is asked', 'try'],
  ])('%s leaves nothing', async (_, where) => {
    const { clock, store, locks } = lockBench();
    const lease = where === 'local' ? await locks.acquire(KEY) : undefined;
    if (where === 'pause') await store.giveToAnother(KEY);
    if (where === 'try') store.onAcquire = (_claim, forward) => after(clock, 400, forward);
    const aborter = new AbortController();
    const call = outcomeOf(locks.acquire(KEY, { signal: aborter.signal, waitMs: Infinity, ttlMs: 3_000 }));
    await clock.advance(100);
    aborter.abort('gone');
    expect(await call).toBe('gone');
    await lease?.release();
    await clock.advance(1_000);
    expect(locks.busy).toBe(false);
    expect(clock.armed).toBe(0);
    expect(store.acquires).toHaveLength(where === 'pause' ? store.acquires.length : 1);
    if (where !== 'pause') expect(await store.taken(KEY)).toBe(false);
  });

  it('in the very turn in which it is let in asks the store nothing', async () => {
    const { store, locks } = lockBench();
    const aborter = new AbortController();
    const lease = await locks.acquire(KEY);
    const call = outcomeOf(locks.acquire(KEY, { signal: aborter.signal }));
    const last = locks.withLock(KEY, () => 'entered');
    locks.events.subscribe(
      ({ type }) => void (type === 'released' && queueMicrotask(() => aborter.abort('gone'))),
    );
    await lease.release();
    expect(await call).toBe('gone');
    expect(await last).toBe('entered');
    expect(store.acquires).toHaveLength(2);
    expect(locks.busy).toBe(false);
  });

  it('is not mistaken for a store that is away', async () => {
    const { clock, store, locks, events } = lockBench();
    store.onAcquire = silence;
    const aborter = new AbortController();
    const call = outcomeOf(locks.acquire(KEY, { signal: aborter.signal }));
    await settled();
    aborter.abort('gone');
    expect(await call).toBe('gone');
    expect(events).toEqual([]);
    await clock.advance(60_000);
    expect(clock.armed).toBe(0);
  });

  it('makes no noise about its listeners, however many wait with one signal', async () => {
    const { locks } = lockBench();
    const warned = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const { signal } = new AbortController();
    await Promise.all(Array.from({ length: 50 }, () => locks.withLock(KEY, { signal }, settled)));
    expect(warned).not.toHaveBeenCalled();
    warned.mockRestore();
  });
});
