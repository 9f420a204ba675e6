import { AsyncLocalStorage } from 'node:async_hooks';

import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { ScriptedStore } from '../../test/scripted-store.js';
import { contextLeases, currentLease, LockService } from './index.js';

const KEY = 'invoice:1';

describe('a nested call on a key that the chain holds (C137)', () => {
  it('joins the hold: same lease, same token, one grant, one release', async () => {
    const { store, locks } = lockBench();
    const tokens = await locks.withLock(KEY, async (outer) =>
      locks.withLock(KEY, async (inner) =>
        locks.withLock(KEY, (innermost) => [outer.token, inner.token, innermost.token]),
      ),
    );
    expect(new Set(tokens).size).toBe(1);
    expect(store.acquires).toHaveLength(1);
    expect(store.releases).toHaveLength(1);
    expect(locks.busy).toBe(false);
  });

  it('joins across callbacks, timers and emitters of the chain', async () => {
    const { store, locks } = lockBench();
    await locks.withLock(KEY, async () => {
      await new Promise<void>((resolve) => {
        setImmediate(() => void locks.withLock(KEY, () => undefined).then(resolve));
      });
    });
    expect(store.acquires).toHaveLength(1);
  });

  it('takes turns with its siblings: Promise.all never shares the section', async () => {
    const { store, locks } = lockBench();
    let inside = 0;
    let most = 0;
    const order: number[] = [];
    const child = (i: number): Promise<void> =>
      locks.withLock(KEY, async () => {
        most = Math.max(most, ++inside);
        order.push(i);
        await settled();
        inside -= 1;
      });
    await locks.withLock(KEY, () => Promise.all([0, 1, 2, 3].map(child)));
    expect(most).toBe(1);
    expect(order).toEqual([0, 1, 2, 3]);
    expect(store.acquires).toHaveLength(1);
  });

  it('does not exclude the outer body: a turn is taken among siblings only', async () => {
    const { locks } = lockBench();
    const pause = gate();
    const steps: string[] = [];
    await locks.withLock(KEY, async () => {
      const child = locks.withLock(KEY, async () => {
        steps.push('child');
        await pause.passed;
      });
      await settled();
      steps.push('outer goes on');
      pause.open();
      await child;
    });
    expect(steps).toEqual(['child', 'outer goes on']);
  });

  it('takes the turn of a sibling only after the grandchildren of that one have ended', async () => {
    const { locks } = lockBench();
    const pause = gate();
    const steps: string[] = [];
    await locks.withLock(KEY, async () => {
      const first = locks.withLock(KEY, () => {
        void locks.withLock(KEY, async () => {
          await pause.passed;
          steps.push('grandchild');
        });
      });
      const second = locks.withLock(KEY, () => void steps.push('second'));
      await first;
      await settled();
      expect(steps).toEqual([]);
      pause.open();
      await second;
    });
    expect(steps).toEqual(['grandchild', 'second']);
  });

  it('runs each sibling in its own chain, also when another one wakes it', async () => {
    const { locks } = lockBench();
    const requests = new AsyncLocalStorage<string>();
    const seen: (string | undefined)[] = [];
    const call = (request: string, key: string): Promise<void> =>
      requests.run(request, () =>
        locks.withLock(key, async () => {
          await settled();
          seen.push(`${requests.getStore()} ${currentLease(key)?.key}`);
        }),
      );
    await locks.withLock(KEY, () => Promise.all([call('a', KEY), call('b', KEY), call('c', KEY)]));
    await Promise.all([call('d', 'other'), call('e', 'other'), call('f', 'other')]);
    expect(seen).toEqual(
      ['a', 'b', 'c'].map((r) => `${r} ${KEY}`).concat(['d', 'e', 'f'].map((r) => `${r} other`)),
    );
  });

  it('waits no longer for its turn than waitMs says', async () => {
    const { clock, locks } = lockBench();
    const pause = gate();
    const outer = locks.withLock(KEY, async () => {
      void locks.withLock(KEY, () => pause.passed);
      return outcomeOf(locks.withLock(KEY, { waitMs: 200 }, () => 'entered'));
    });
    await clock.advance(200);
    expect(await outer).toMatchObject({ code: 'LOCK_TIMEOUT', outcome: 'not-started', waitedMs: 200 });
    pause.open();
    await settled();
    expect(locks.busy).toBe(false);
    expect(clock.armed).toBe(0);
  });

  it('stops waiting for its turn when its signal aborts, and does not start when that was before', async () => {
    const { clock, locks } = lockBench();
    const pause = gate();
    const aborter = new AbortController();
    const work = jest.fn();
    const outer = locks.withLock(KEY, async () => {
      void locks.withLock(KEY, () => pause.passed);
      const waiting = outcomeOf(locks.withLock(KEY, { signal: aborter.signal }, work));
      await settled();
      aborter.abort('gone');
      const first = await waiting;
      pause.open();
      await settled(); // nobody has the turn now
      return [first, await outcomeOf(locks.withLock(KEY, { signal: aborter.signal }, work))];
    });
    expect(await outer).toEqual(['gone', 'gone']);
    expect(work).not.toHaveBeenCalled();
    expect(clock.armed).toBe(0);
  });

  it('stops waiting for its turn when the lease is lost meanwhile', async () => {
    const { clock, store, locks } = lockBench();
    const pause = gate();
    const work = jest.fn();
    const outer = locks.withLock(KEY, { ttlMs: 3_000 }, async () => {
      void outcomeOf(locks.withLock(KEY, () => pause.passed));
      return outcomeOf(locks.withLock(KEY, { waitMs: Infinity }, work));
    });
    const told = outcomeOf(outer);
    await settled();
    await store.giveToAnother(KEY);
    await clock.advance(1_000);
    await settled();
    expect(await told).toMatchObject({ code: 'LEASE_LOST', value: { code: 'LEASE_LOST' } });
    expect(work).not.toHaveBeenCalled();
    pause.open();
    await settled();
    expect(locks.busy).toBe(false);
  });

  it('is refused once the lease is lost: the body does not run', async () => {
    const { clock, locks } = lockBench();
    const work = jest.fn();
    const call = locks.withLock(KEY, { ttlMs: 3_000 }, async () => {
      clock.block(9_000);
      await locks.withLock(KEY, work);
    });
    await expect(call).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
    expect(work).not.toHaveBeenCalled();
  });

  it('never joins a hold of the same key in another store', async () => {
    const { clock, store } = lockBench();
    const archive = new ScriptedStore(clock);
    const locks = new LockService({ stores: { default: store, archive }, clock });
    await locks.withLock(KEY, (outer) =>
      locks.withLock(KEY, { store: 'archive' }, (inner) => {
        expect(inner).not.toBe(outer);
        expect([inner.store, outer.store]).toEqual(['archive', 'default']);
      }),
    );
    expect([store.acquires.length, archive.acquires.length]).toEqual([1, 1]);
  });

  it('never joins a hold of another application in the same process', async () => {
    const [one, two] = [lockBench(), lockBench()];
    await one.locks.withLock(KEY, (outer) =>
      two.locks.withLock(KEY, (inner) => {
        expect(inner).not.toBe(outer);
        expect(contextLeases()).toEqual([inner, outer]);
      }),
    );
    expect([one.store.acquires.length, two.store.acquires.length]).toEqual([1, 1]);
  });

  it('never joins a hold of another namespace or tenant on one store', async () => {
    const { clock, store } = lockBench();
    let tenant = 'a';
    const locks = new LockService({ stores: { default: store }, clock, scope: () => tenant });
    await locks.withLock(KEY, async () => {
      tenant = 'b';
      await locks.withLock(KEY, () => undefined);
    });
    expect(store.acquires.map(({ key }) => key)).toEqual(['~a:invoice:1', '~b:invoice:1']);
  });
});
