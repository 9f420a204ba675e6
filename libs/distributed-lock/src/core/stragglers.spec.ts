import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { contextLeases, currentLease, requireLease, type Lease } from './index.js';

const KEY = 'invoice:1';

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
