import { lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { after, refusal, silence } from '../../test/scripted-store.js';

const KEY = 'invoice:1';
const CALL = { ttlMs: 3_000, waitMs: 0 };

describe('a grant that nobody holds', () => {
  it('because its answer was lost is given back by owner id at once', async () => {
    const { store, locks } = lockBench();
    store.onAcquire = async (_, forward) => {
      await forward();
      return refusal();
    };
    expect(await outcomeOf(locks.acquire(KEY, CALL))).toMatchObject({ code: 'STORE_UNAVAILABLE' });
    await settled();
    expect(store.releases).toEqual([{ key: KEY, ownerId: store.acquires[0]?.ownerId, keepForMs: 0 }]);
    expect(await store.taken(KEY)).toBe(false);
  });

  it('because its answer came too late is given back when it was asked for, and once more when it came', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = (_, forward) => after(clock, 1_500, forward); // takes the key long after the first release
    const call = outcomeOf(locks.acquire(KEY, CALL));
    await clock.advance(1_499);
    expect(await call).toMatchObject({ code: 'STORE_UNAVAILABLE' });
    expect(store.releases).toHaveLength(1);
    await clock.advance(1);
    expect(store.releases).toHaveLength(2);
    expect(await store.taken(KEY)).toBe(false);
    expect(clock.armed).toBe(0);
  });

  it('because its caller gave up meanwhile is given back as well', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = (_, forward) => after(clock, 900, forward);
    const aborter = new AbortController();
    const call = outcomeOf(locks.acquire(KEY, { ttlMs: 3_000, signal: aborter.signal }));
    await clock.advance(100);
    aborter.abort('gone');
    expect(await call).toBe('gone');
    await clock.advance(800);
    expect(store.acquires).toHaveLength(1);
    expect(await store.taken(KEY)).toBe(false);
  });

  it('C041: because this process slept through its ttl is given back, and the body not entered', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = async (_, forward) => {
      const answer = await forward();
      clock.block(2_970);
      return answer;
    };
    const work = jest.fn();
    expect(await outcomeOf(locks.withLock(KEY, CALL, work))).toMatchObject({
      code: 'STORE_UNAVAILABLE',
      outcome: 'not-started',
    });
    expect(work).not.toHaveBeenCalled();
    await settled();
    expect(await store.taken(KEY)).toBe(false);
  });

  it('is asked for until the store answers', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = async (_, forward) => {
      await forward();
      return refusal();
    };
    store.onRelease = refusal;
    await outcomeOf(locks.acquire(KEY, CALL));
    await clock.advance(1_000);
    expect(store.releases.length).toBeGreaterThan(3);
    expect(await store.taken(KEY)).toBe(true);
    store.onRelease = (_, forward) => forward();
    await clock.advance(1_000);
    expect(await store.taken(KEY)).toBe(false);
    expect(clock.armed).toBe(0);
  });

  it('is no longer asked for once it has run out by itself', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = silence;
    store.onRelease = silence;
    await Promise.all([outcomeOf(locks.acquire(KEY, CALL)), clock.advance(1_000)]);
    await clock.advance(5_000);
    const asked = store.releases.length;
    await clock.advance(60_000);
    expect(store.releases).toHaveLength(asked);
    expect(clock.armed).toBe(0);
  });

  it('costs one command at a time and key, however many tries the outage took', async () => {
    const { clock, store, locks } = lockBench();
    let underWay = 0;
    let most = 0;
    store.onAcquire = refusal;
    store.onRelease = () => {
      most = Math.max(most, ++underWay);
      return after(clock, 5, refusal).finally(() => (underWay -= 1));
    };
    const call = outcomeOf(locks.acquire(KEY, { ttlMs: 15_000, waitMs: 10_000 }));
    await clock.advance(10_000);
    await call;
    expect(store.acquires.length).toBeGreaterThan(40);
    expect(most).toBe(1);
    expect(store.releases.length).toBeLessThan(30);
    store.onRelease = (_, forward) => forward();
    await clock.advance(2_000);
    const ids = new Set(store.releases.map(({ ownerId }) => ownerId));
    expect(store.acquires.filter(({ ownerId }) => !ids.has(ownerId))).toEqual([]);
    await clock.advance(30_000);
    expect(clock.armed).toBe(0);
  });

  it('of one key does not wait for that of another', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = async (_, forward) => {
      await forward();
      return refusal();
    };
    store.onRelease = ({ key }, forward) => (key === 'invoice:0' ? silence() : forward());
    await Promise.all([0, 1, 2].map((i) => outcomeOf(locks.acquire(`invoice:${i}`, CALL))));
    await settled();
    expect(await Promise.all([0, 1, 2].map((i) => store.taken(`invoice:${i}`)))).toEqual([
      true,
      false,
      false,
    ]);
    await clock.advance(60_000);
    expect(clock.armed).toBe(0);
  });
});
