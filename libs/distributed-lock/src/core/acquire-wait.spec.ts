import { lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { after } from '../../test/scripted-store.js';

const KEY = 'invoice:1';

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
