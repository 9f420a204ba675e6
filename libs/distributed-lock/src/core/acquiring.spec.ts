import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { after, refusal, silence } from '../../test/scripted-store.js';
import type { Busy } from './index.js';

const KEY = 'invoice:1';
const BUSY: Busy = { kind: 'busy', retryAfterMs: null };

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

describe('waiting for a busy key', () => {
  it('with waitMs 0 is one try', async () => {
    const { store, locks } = lockBench();
    await store.giveToAnother(KEY, 3_000);
    const refused = await outcomeOf(locks.acquire(KEY, { waitMs: 0 }));
    expect(refused).toMatchObject({ code: 'LOCK_TIMEOUT', outcome: 'not-started', retryAfterMs: 3_000 });
    expect(store.acquires).toHaveLength(1);
    expect(await locks.tryAcquire(KEY)).toBeNull();
    expect(store.acquires).toHaveLength(2);
  });

  it('with waitMs 0 does not wait for a caller of this process either, and says how long that one may take', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire(KEY, { ttlMs: 3_000 });
    const refused = outcomeOf(locks.acquire(KEY, { waitMs: 0 }));
    const none = locks.tryAcquire(KEY);
    await clock.advance(0);
    expect(await refused).toMatchObject({ code: 'LOCK_TIMEOUT', retryAfterMs: 2_968 });
    expect(await none).toBeNull();
    await lease.release();
    expect(store.acquires).toHaveLength(1);
  });

  it('with waitMs Infinity goes on until the key is free', async () => {
    const { clock, store, locks } = lockBench();
    await store.giveToAnother(KEY, 60_000);
    const acquiring = locks.acquire(KEY, { waitMs: Infinity });
    await clock.advance(60_001);
    const lease = await acquiring;
    expect(lease.state.kind).toBe('acquired');
    await lease.release();
  });

  it('ends exactly after waitMs, with a last try at that moment', async () => {
    const { clock, store, locks } = lockBench();
    await store.giveToAnother(KEY);
    const refused = outcomeOf(locks.acquire(KEY, { waitMs: 1_000 }));
    const tries: number[] = [];
    store.onAcquire = (_, forward) => {
      tries.push(clock.monotonicMs());
      return forward();
    };
    await clock.advance(1_000);
    expect(await refused).toMatchObject({ code: 'LOCK_TIMEOUT', waitedMs: 1_000 });
    expect(tries.at(-1)).toBe(1_000);
    expect(clock.armed).toBe(0);
  });

  it('gets the key at the last moment', async () => {
    const { clock, store, locks } = lockBench();
    await store.giveToAnother(KEY, 1_000);
    const acquiring = locks.acquire(KEY, { waitMs: 1_000 });
    await clock.advance(1_000);
    await (await acquiring).release();
  });

  it('tries again when the present grant ends, not later', async () => {
    const { clock, store, locks } = lockBench();
    await store.giveToAnother(KEY, 40);
    const acquiring = locks.acquire(KEY);
    await clock.advance(46);
    await (await acquiring).release();
  });

  it('uses a new owner id for every try', async () => {
    const { clock, store, locks } = lockBench();
    await store.giveToAnother(KEY);
    const refused = outcomeOf(locks.acquire(KEY));
    await clock.advance(5_000);
    await refused;
    const ids = store.acquires.map(({ ownerId }) => ownerId);
    expect(ids.every((id) => /^[0-9a-f]{32}$/.test(id))).toBe(true);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('C092: backs off with jitter, which is kept at the longest pause too', async () => {
    const { clock, store, locks } = lockBench();
    await store.giveToAnother(KEY);
    const tries: number[] = [];
    store.onAcquire = (_, forward) => {
      tries.push(clock.monotonicMs());
      return forward();
    };
    const refused = outcomeOf(locks.acquire(KEY, { waitMs: 20_000 }));
    await clock.advance(20_000);
    await refused;
    const gaps = tries.slice(1, -1).map((atMs, i) => atMs - (tries[i] as number));
    const late = gaps.slice(6);
    expect(Math.max(...late)).toBeLessThanOrEqual(250);
    expect(Math.min(...late)).toBeGreaterThanOrEqual(125);
    expect(new Set(late.map(Math.round)).size).toBeGreaterThan(10);
    expect(tries.length).toBeLessThan(20_000 / 125 + 10);
  });

  it('C092: costs 50 waiters in one process no more tries than one of them', async () => {
    const { clock, store, locks } = lockBench();
    await store.giveToAnother(KEY, 10_000);
    const waiters = Array.from({ length: 50 }, () =>
      locks.withLock(KEY, { waitMs: 60_000 }, () => after(clock, 5, settled)),
    );
    await clock.advance(9_999);
    expect(store.acquires.length).toBeLessThan(10_000 / 125 + 10);
    const before = store.acquires.length;
    await clock.advance(1_000);
    await Promise.all(waiters);
    expect(store.acquires.length - before).toBeLessThan(50 + 5);
  });

  it.each([0, -1, -5_000, NaN, '100', undefined])(
    'keeps its pace when a store says that the key is busy for %p ms',
    async (retryAfterMs) => {
      const { clock, store, locks } = lockBench();
      store.onAcquire = () => Promise.resolve({ kind: 'busy', retryAfterMs });
      const refused = outcomeOf(locks.acquire(KEY, { waitMs: 1_000 }));
      await clock.advance(1_000);
      expect(await refused).toMatchObject({ code: 'LOCK_TIMEOUT' });
      expect(store.acquires.length).toBeLessThan(260);
      expect(clock.armed).toBe(0);
    },
  );
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

describe('a store that is away (C044)', () => {
  it.each([
    ['hangs', silence],
    ['rejects', refusal],
    [
      'throws',
      () => {
        throw new Error('not connected');
      },
    ],
  ])('and %s is never mistaken for a busy key, and bounds the wait', async (_, trouble) => {
    const { clock, store, locks, events } = lockBench();
    store.onAcquire = trouble;
    const call = outcomeOf(locks.acquire(KEY, { waitMs: 500 }));
    await clock.advance(760);
    expect(await call).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started', statusCode: 503 });
    expect(events).toContainEqual(expect.objectContaining({ type: 'acquire-unanswered' }));
    expect(events.at(-1)).toMatchObject({ type: 'refused', code: 'STORE_UNAVAILABLE' });
  });

  it('is no busy key for those who queue behind the one that asks', async () => {
    for (const trouble of [silence, refusal]) {
      const { clock, store, locks } = lockBench();
      store.onAcquire = trouble;
      const calls = Array.from({ length: 20 }, () => outcomeOf(locks.acquire(KEY, { waitMs: 500 })));
      await clock.advance(1_000);
      const codes = (await Promise.all(calls)).map((error) => (error as { code?: string }).code);
      expect(new Set(codes)).toEqual(new Set(['STORE_UNAVAILABLE']));
    }
  });

  it('tryAcquire rejects rather than saying that the key is busy', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = silence;
    const call = outcomeOf(locks.tryAcquire(KEY));
    await clock.advance(1_000);
    expect(await call).toMatchObject({ code: 'STORE_UNAVAILABLE' });
  });

  it('and comes back within the wait costs nothing but time', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = refusal;
    const acquiring = locks.acquire(KEY, { waitMs: 5_000 });
    await clock.advance(2_000);
    store.onAcquire = (_, forward) => forward();
    await clock.advance(300);
    await (await acquiring).release();
  });

  it('what was said last counts: busy before, away at the end, and the other way round', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = () => (clock.monotonicMs() < 500 ? Promise.resolve(BUSY) : refusal());
    const away = outcomeOf(locks.acquire(KEY, { waitMs: 1_000 }));
    await clock.advance(1_000);
    expect(await away).toMatchObject({ code: 'STORE_UNAVAILABLE' });
    store.onAcquire = () => (clock.monotonicMs() < 1_500 ? refusal() : Promise.resolve(BUSY));
    const busy = outcomeOf(locks.acquire(KEY, { waitMs: 1_000 }));
    await clock.advance(1_000);
    expect(await busy).toMatchObject({ code: 'LOCK_TIMEOUT' });
  });

  it.each([
    ["'1'", '1'],
    ["'OK'", 'OK'],
    ['null', null],
    ['undefined', undefined],
    ['1', 1],
    ['a grant without a token', { kind: 'granted' }],
    ['a grant with a text for a token', { kind: 'granted', token: '7' }],
    ['a grant with a bigint for a token', { kind: 'granted', token: 7n }],
    ['a grant with a token beyond 2^53', { kind: 'granted', token: 2 ** 53 }],
    ['a grant of another spelling', { kind: 'GRANTED', token: 7 }],
  ])('C070: and says %s has granted nothing', async (_, answer) => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = () => Promise.resolve(answer);
    const work = jest.fn();
    const call = outcomeOf(locks.withLock(KEY, { waitMs: 0 }, work));
    await clock.advance(1_000);
    expect(await call).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
    expect(work).not.toHaveBeenCalled();
    expect(store.releases[0]).toMatchObject({ ownerId: store.acquires[0]?.ownerId });
  });
});
