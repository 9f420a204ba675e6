import { AsyncLocalStorage } from 'node:async_hooks';

import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { ScriptedStore } from '../../test/scripted-store.js';
import { contextLeases, currentLease, LockService, requireLease, type Lease } from './index.js';

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

describe('work that nobody awaits', () => {
  it('C100: keeps the hold alive when it began inside, and is protected until its end', async () => {
    const { store, locks } = lockBench();
    const pause = gate();
    let straggler!: Promise<string>;
    await locks.withLock(KEY, () => {
      straggler = locks.withLock(KEY, async (lease) => {
        await pause.passed;
        lease.assertHeld();
        return 'protected';
      });
    });
    expect(await store.taken(KEY)).toBe(true);
    const next = locks.withLock(KEY, () => 'next');
    pause.open();
    expect(await straggler).toBe('protected');
    expect(await next).toBe('next');
    expect(store.acquires).toHaveLength(2);
    await settled();
    expect(locks.busy).toBe(false);
  });

  it('C100: acquires anew when it begins after the hold has ended', async () => {
    const { store, locks } = lockBench();
    const pause = gate();
    let handler!: Promise<Lease>;
    let outer!: Lease;
    await locks.withLock(KEY, (lease) => {
      outer = lease;
      handler = pause.passed.then(() => locks.withLock(KEY, (own) => own));
    });
    expect(await store.taken(KEY)).toBe(false);
    pause.open();
    expect((await handler).token).toBeGreaterThan(outer.token);
    expect(store.acquires).toHaveLength(2);
  });

  it('joins through a context that outlived its own section but not the hold', async () => {
    const { store, locks } = lockBench();
    const pause = gate();
    let late!: Promise<string>;
    await locks.withLock(KEY, async () => {
      await locks.withLock(KEY, () => {
        late = settled().then(() => locks.withLock(KEY, () => 'joined'));
      });
      await settled();
      await settled();
      pause.open();
    });
    expect(await late).toBe('joined');
    expect(store.acquires).toHaveLength(1);
  });

  it('C123: finds, after the end, that it holds nothing', async () => {
    const { locks } = lockBench();
    const pause = gate();
    let slowWrite!: Promise<unknown>;
    let signal!: AbortSignal;
    const call = locks.withLock(KEY, async (lease) => {
      signal = lease.signal;
      slowWrite = outcomeOf(pause.passed.then(() => [currentLease(), requireLease()]));
      await Promise.all([slowWrite, Promise.reject(new Error('failed fast'))]);
    });
    await expect(call).rejects.toThrow('failed fast');
    expect(signal.aborted).toBe(true);
    pause.open();
    const told = (await slowWrite) as Error;
    expect(told).toMatchObject({ code: 'LOCK_NOT_HELD' });
    expect(told.message).toContain('outlived');
  });

  it('is a rejection of its own, never an unhandled one of ours', async () => {
    const { clock, locks } = lockBench();
    const pause = gate();
    let straggler!: Promise<unknown>;
    await locks.withLock(KEY, { ttlMs: 3_000 }, () => {
      straggler = outcomeOf(locks.withLock(KEY, () => pause.passed));
    });
    clock.block(9_000);
    await clock.advance(1);
    pause.open();
    expect(await straggler).toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
    await settled();
    expect(locks.busy).toBe(false);
  });

  it('does not make the context grow when it calls itself for ever', async () => {
    const { locks } = lockBench();
    let depth = 0;
    let rounds = 0;
    const done = gate();
    const tick = async (): Promise<void> => {
      await locks.withLock(`tick:${rounds % 2}`, () => {
        depth = Math.max(depth, contextLeases().length);
        rounds += 1;
        if (rounds < 50) setImmediate(() => void tick());
        else done.open();
      });
    };
    void tick();
    await done.passed;
    expect(depth).toBeLessThanOrEqual(2);
    let ring = 0;
    const next = async (): Promise<void> => {
      await locks.withLock(`ring:${ring}`, () => {
        depth = Math.max(depth, contextLeases().length);
        ring += 1;
        if (ring < 50) void next(); // begins while this hold lasts
      });
    };
    await next();
    await settled();
    expect(depth).toBeLessThanOrEqual(3);
    expect(locks.busy).toBe(false);
  });
});

describe('a lease that was handed over', () => {
  it('is in no context until it is run', async () => {
    const { locks } = lockBench();
    const lease = await locks.acquire(KEY);
    expect(currentLease()).toBeUndefined();
    await lease.run(() => expect(currentLease()).toBe(lease));
    expect(currentLease()).toBeUndefined();
    await lease.release();
  });

  it('is joined inside run, and kept until the last section there has ended', async () => {
    const { store, locks } = lockBench();
    const lease = await locks.acquire(KEY);
    await lease.run(() => locks.withLock(KEY, (inner) => expect(inner).toBe(lease)));
    expect(store.acquires).toHaveLength(1);
    expect(await store.taken(KEY)).toBe(true);
    expect(await lease.release()).toBe('released');
    await expect(lease.run(() => undefined)).rejects.toMatchObject({ code: 'LOCK_NOT_HELD' });
    expect(locks.busy).toBe(false);
  });

  it('is refused where the chain holds the key already: acquire would wait for itself', async () => {
    const { store, locks } = lockBench();
    const lease = await locks.acquire(KEY);
    await lease.run(async () => {
      await expect(locks.acquire(KEY)).rejects.toMatchObject({ code: 'SELF_DEADLOCK' });
      await expect(locks.tryAcquire(KEY)).rejects.toMatchObject({ code: 'SELF_DEADLOCK' });
    });
    await lease.release();
    expect(store.acquires).toHaveLength(1);
  });

  it('keeps local callers out while run goes on after the release', async () => {
    const { store, locks } = lockBench();
    const pause = gate();
    const lease = await locks.acquire(KEY);
    const running = lease.run(() => pause.passed);
    await lease.release();
    const next = locks.withLock(KEY, () => 'entered');
    await settled();
    expect(store.acquires).toHaveLength(1);
    pause.open();
    await running;
    expect(await next).toBe('entered');
  });
});

describe('the body', () => {
  it('may throw before it returns a promise', async () => {
    const { store, locks } = lockBench();
    const call = locks.withLock(KEY, () => {
      throw new Error('broken');
    });
    await expect(call).rejects.toThrow('broken');
    expect(await store.taken(KEY)).toBe(false);
    expect(locks.busy).toBe(false);
  });

  it('may return a thenable that starts its work only when it is awaited, and that work is inside', async () => {
    const { locks } = lockBench();
    const query = {
      then(resolve: (value: unknown) => void) {
        resolve(currentLease()?.key);
      },
    };
    expect(await locks.withLock(KEY, () => query as Promise<string>)).toBe(KEY);
    const lease = await locks.acquire(KEY);
    expect(await lease.run(() => query as Promise<string>)).toBe(KEY);
    await lease.release();
  });

  it('of an outer lock makes the refusal of an inner one "unknown", never a 4xx', async () => {
    const { store, locks } = lockBench();
    await store.giveToAnother('stock:7');
    let inner: unknown;
    const call = locks.withLock(KEY, async () => {
      const refused = locks.withLock('stock:7', { waitMs: 0 }, () => undefined);
      await refused.catch((error: unknown) => (inner = { ...(error as object) }));
      await refused;
    });
    const told = await outcomeOf(call);
    expect(inner).toMatchObject({ outcome: 'not-started' });
    expect(told).toMatchObject({ code: 'LOCK_TIMEOUT', key: 'stock:7', outcome: 'unknown', statusCode: 503 });
  });
});

describe('the context', () => {
  it('lists the leases of the chain, innermost first and each once', async () => {
    const { locks } = lockBench();
    await locks.withLock('a', () =>
      locks.withLock('b', () =>
        locks.withLock('a', () => expect(contextLeases().map(({ key }) => key)).toEqual(['a', 'b'])),
      ),
    );
    expect(contextLeases()).toEqual([]);
  });

  it('wants the key where several are held, and never makes one up', async () => {
    const { locks } = lockBench();
    expect(() => requireLease()).toThrow(expect.objectContaining({ code: 'LOCK_NOT_HELD' }));
    await locks.withLock('a', () =>
      locks.withLock('b', () => {
        expect(() => currentLease()).toThrow(expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }));
        expect(currentLease('a')?.key).toBe('a');
        expect(requireLease('b').key).toBe('b');
        expect(currentLease('c')).toBeUndefined();
        expect(() => requireLease('c')).toThrow(expect.objectContaining({ code: 'LOCK_NOT_HELD', key: 'c' }));
      }),
    );
  });
});
