import { lockBench, outcomeOf } from '../../test/lock-bench.js';
import { refusal, silence } from '../../test/scripted-store.js';
import type { Busy } from './index.js';

const KEY = 'invoice:1';
const BUSY: Busy = { kind: 'busy', retryAfterMs: null };

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
