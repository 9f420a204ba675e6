import { lockBench, outcomeOf, settled, type LockBench } from '../../test/lock-bench.js';
import { after, silence } from '../../test/scripted-store.js';
import { FencedOutError, LockInsideTransactionError, type Fence } from './index.js';

const KEY = 'invoice:1';
const TTL = { ttlMs: 3_000 };

function fenceThat(raise: Fence['raise']): Fence {
  return { beforeAcquire: () => undefined, raise };
}

/** Calls with a body that must not run, and tells what the call came to. */
async function refusedBy(bench: LockBench, fence: Fence, elapsedMs = 0): Promise<unknown> {
  const remove = bench.locks.fences.add(fence);
  const work = jest.fn();
  const call = outcomeOf(bench.locks.withLock(KEY, TTL, work));
  await bench.clock.advance(elapsedMs);
  const refused = await call;
  expect(work).not.toHaveBeenCalled();
  await bench.clock.advance(10);
  expect(await bench.store.taken(KEY)).toBe(false);
  expect(bench.locks.busy).toBe(false);
  remove();
  return refused;
}

describe('a fence', () => {
  it('is raised between the grant and the body, with the new lease', async () => {
    const { locks } = lockBench();
    const steps: string[] = [];
    locks.fences.add(fenceThat(async (lease) => void steps.push(`raised to ${lease.token}`)));
    const token = await locks.withLock(KEY, (lease) => {
      steps.push('body');
      return lease.token;
    });
    expect(steps).toEqual([`raised to ${token}`, 'body']);
  });

  it('is not raised again by a nested call', async () => {
    const { locks } = lockBench();
    const raise = jest.fn(() => Promise.resolve());
    locks.fences.add(fenceThat(raise));
    await locks.withLock(KEY, () => locks.withLock(KEY, () => undefined));
    expect(raise).toHaveBeenCalledTimes(1);
  });

  it('that was taken out is asked no more', async () => {
    const { locks } = lockBench();
    const raise = jest.fn(() => Promise.resolve());
    locks.fences.add(fenceThat(raise))();
    await locks.withLock(KEY, () => undefined);
    expect(raise).not.toHaveBeenCalled();
  });

  it('may refuse the key before anything is sent', async () => {
    const bench = lockBench();
    const refusal = new LockInsideTransactionError('put the lock outside', { key: KEY });
    const fence: Fence = {
      beforeAcquire: () => {
        throw refusal;
      },
      raise: () => Promise.resolve(),
    };
    expect(await refusedBy(bench, fence)).toBe(refusal);
    expect(bench.store.acquires).toEqual([]);
    expect(bench.events).toEqual([
      expect.objectContaining({ type: 'refused', code: 'LOCK_INSIDE_TRANSACTION' }),
    ]);
  });

  it('that knows a newer owner refuses the call, and the lock is given back', async () => {
    const bench = lockBench();
    const fencedOut = new FencedOutError('newer owner', { key: KEY });
    expect(
      await refusedBy(
        bench,
        fenceThat(() => Promise.reject(fencedOut)),
      ),
    ).toBe(fencedOut);
    expect(fencedOut.outcome).toBe('not-started');
    expect(bench.events.at(-1)).toMatchObject({ type: 'refused', code: 'FENCED_OUT' });
  });

  it.each([
    ['fails', () => Promise.reject(new Error('connection lost')), 0],
    [
      'throws',
      () => {
        throw new Error('connection lost');
      },
      0,
    ],
    ['hangs', silence, 1_000],
  ])('that %s keeps the body out: a late write could not be refused', async (_, raise, elapsedMs) => {
    const refused = await refusedBy(lockBench(), fenceThat(raise), elapsedMs);
    expect(refused).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started', key: KEY });
    expect((refused as Error).cause).toBeInstanceOf(Error);
  });

  it('that is raised while the lease ends keeps the body out, and nothing was started', async () => {
    const bench = lockBench();
    const refused = await refusedBy(
      bench,
      fenceThat(async () => bench.clock.block(9_000)),
    );
    expect(refused).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
    expect((refused as Error).cause).toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
  });

  it('that itself finds the lease over says so without claiming that work was done', async () => {
    const bench = lockBench();
    const fence = fenceThat(async (lease) => {
      bench.clock.block(9_000);
      lease.assertHeld();
    });
    expect(await refusedBy(bench, fence)).toMatchObject({
      code: 'STORE_UNAVAILABLE',
      outcome: 'not-started',
    });
  });

  it('that is raised while the caller gives up keeps the body out', async () => {
    const bench = lockBench();
    const aborter = new AbortController();
    bench.locks.fences.add(fenceThat(() => after(bench.clock, 100, settled)));
    const work = jest.fn();
    const call = outcomeOf(bench.locks.withLock(KEY, { ...TTL, signal: aborter.signal }, work));
    await bench.clock.advance(50);
    aborter.abort('gone');
    await bench.clock.advance(50);
    expect(await call).toBe('gone');
    expect(work).not.toHaveBeenCalled();
    expect(await bench.store.taken(KEY)).toBe(false);
  });

  it('that is slow does not cost the lease: it is renewed meanwhile', async () => {
    const { clock, store, locks } = lockBench();
    for (let i = 0; i < 5; i++) locks.fences.add(fenceThat(() => after(clock, 900, settled)));
    const acquiring = locks.acquire(KEY, TTL);
    await clock.advance(4_500);
    (await acquiring).assertHeld();
    expect(store.renewals.length).toBeGreaterThan(3);
    await (await acquiring).release();
  });

  it('that one cannot raise is enough, whatever the others say', async () => {
    const bench = lockBench();
    bench.locks.fences.add(fenceThat(() => Promise.resolve()));
    expect(
      await refusedBy(
        bench,
        fenceThat(() => Promise.reject(new Error('away'))),
      ),
    ).toMatchObject({
      code: 'STORE_UNAVAILABLE',
    });
  });
});
