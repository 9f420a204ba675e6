import { AsyncResource } from 'node:async_hooks';

import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { refusal } from '../../test/scripted-store.js';
import { currentLease, FencedOutError, LeaseLostError, type Lease } from './index.js';

const TTL = { ttlMs: 3_000 };
const TAKEN_OVER = { code: 'LEASE_LOST', reason: 'taken-over', key: 'invoice:1', store: 'default' };

describe('the loss of a lease', () => {
  it('is told to the awaited call, with the value of the body attached', async () => {
    const { clock, store, locks, events } = lockBench();
    const pause = gate();
    const call = outcomeOf(locks.withLock('invoice:1', TTL, () => pause.passed.then(() => 'settled')));
    await clock.advance(0);
    await store.giveToAnother('invoice:1');
    await clock.advance(1_000);
    pause.open();
    expect(await call).toMatchObject({ ...TAKEN_OVER, value: 'settled', outcome: 'unknown' });
    expect(events.filter(({ type }) => type === 'lease-lost')).toHaveLength(1);
    expect(clock.armed).toBe(0);
  });

  it('is told to the awaited call, with the error of the body attached', async () => {
    const { clock, store, locks } = lockBench();
    const pause = gate();
    const broken = new Error('broken');
    const call = outcomeOf(
      locks.withLock('invoice:1', TTL, () => pause.passed.then(() => Promise.reject(broken))),
    );
    await clock.advance(0);
    await store.giveToAnother('invoice:1');
    await clock.advance(1_000);
    pause.open();
    expect(await call).toMatchObject({ ...TAKEN_OVER, cause: broken });
  });

  it('is told once: a body that passes the loss on is not wrapped in another', async () => {
    const { clock, store, locks } = lockBench();
    const pause = gate();
    const call = outcomeOf(
      locks.withLock('invoice:1', TTL, async (lease) => {
        await pause.passed;
        lease.assertHeld();
      }),
    );
    await clock.advance(0);
    await store.giveToAnother('invoice:1');
    await clock.advance(1_000);
    pause.open();
    const told = (await call) as Error;
    expect(told).toMatchObject(TAKEN_OVER);
    expect(told.cause).toBeUndefined();
  });

  it('does not hide that a write was refused', async () => {
    const { clock, locks } = lockBench();
    const fencedOut = new FencedOutError('newer owner', {});
    const call = locks.withLock('invoice:1', TTL, () => {
      clock.block(9_000);
      throw fencedOut;
    });
    expect(await outcomeOf(call)).toBe(fencedOut);
  });

  it('is noticed by the release when the key was stolen before the next renewal, with the value attached', async () => {
    const { store, locks, events } = lockBench();
    const call = locks.withLock('invoice:1', TTL, async () => {
      await store.giveToAnother('invoice:1');
      return 'settled';
    });
    expect(await outcomeOf(call)).toMatchObject({ ...TAKEN_OVER, value: 'settled' });
    expect(events.filter(({ type }) => type === 'lease-lost')).toHaveLength(1);
    expect(events.filter(({ type }) => type === 'released')).toHaveLength(0);
  });

  it('is noticed by the release also when the body failed, with the error attached', async () => {
    const { store, locks } = lockBench();
    const broken = new Error('broken');
    const call = locks.withLock('invoice:1', TTL, async () => {
      await store.giveToAnother('invoice:1');
      throw broken;
    });
    expect(await outcomeOf(call)).toMatchObject({ ...TAKEN_OVER, cause: broken });
  });

  it('that falls between the end of the body and the release is told with its own reason', async () => {
    for (let ticks = 0; ticks < 20; ticks++) {
      const { clock, locks } = lockBench();
      const call = locks.withLock('invoice:1', TTL, () => {
        void later(ticks, () => clock.block(9_000));
        return 'settled';
      });
      const end = await outcomeOf(call);
      if (end !== 'settled')
        expect(end).toMatchObject({ code: 'LEASE_LOST', reason: 'expired', value: 'settled' });
    }
  });

  it('aborts the signal at once, with the loss as its reason', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    const { signal } = lease;
    await store.giveToAnother('invoice:1');
    await clock.advance(999);
    expect(signal.aborted).toBe(false);
    await clock.advance(1);
    expect(signal.aborted).toBe(true);
    expect(signal.reason).toBeInstanceOf(LeaseLostError);
    expect(lease.signal).toBe(signal);
  });

  it('shows in a signal that is asked for only afterwards', async () => {
    const { clock, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    clock.block(9_000);
    expect(lease.signal.reason).toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
  });

  it('reaches the listeners of the signal outside of every lock, whoever armed the timer', async () => {
    const { clock, store, locks } = lockBench();
    const schedule = clock.schedule.bind(clock);
    clock.schedule = (delayMs, run) => schedule(delayMs, AsyncResource.bind(run)); // as timers of Node do
    const pause = gate();
    const seen: unknown[] = [];
    const listenTo = (lease: Lease): void => {
      lease.signal.addEventListener('abort', () => seen.push(currentLease()?.key));
      lease.onStateChange(() => seen.push(currentLease()?.key));
    };
    listenTo(await locks.acquire('invoice:1', TTL));
    const other = locks.withLock('invoice:2', { ttlMs: 60_000 }, async () => {
      listenTo(await locks.acquire('invoice:3', { ttlMs: 2_900 })); // arms its own timer, and the one that renews both
      await pause.passed;
    });
    await settled();
    await store.giveToAnother('invoice:1');
    await clock.advance(1_000);
    store.onRenew = refusal; // invoice:1 was taken over, and invoice:3 will expire
    await clock.advance(4_000);
    expect(seen.length).toBeGreaterThan(3);
    expect(seen.every((key) => key === undefined)).toBe(true);
    pause.open();
    await other;
  });

  it('of a handle that nobody releases lets the next local caller in', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const first = await locks.acquire('invoice:1', TTL);
    const second = locks.acquire('invoice:1', { ...TTL, waitMs: 10_000 });
    await clock.advance(2_968);
    expect(first.state.kind).toBe('lease-lost');
    await clock.advance(100);
    expect((await second).token).toBeGreaterThan(first.token);
    expect(await first.release()).toBe('already-gone');
    expect(await store.taken('invoice:1')).toBe(true);
    await (await second).release();
    expect(locks.busy).toBe(false);
  });

  it('keeps other local callers out as long as the body goes on', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const pause = gate();
    const late = outcomeOf(locks.withLock('invoice:1', TTL, () => pause.passed));
    const next = locks.withLock('invoice:1', { ...TTL, waitMs: 60_000 }, () => 'entered');
    await clock.advance(20_000);
    expect(store.acquires).toHaveLength(1);
    pause.open();
    expect(await late).toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
    await clock.advance(10);
    expect(await next).toBe('entered');
  });

  it('by max-hold lets other local callers in although the body hangs, and frees the key in the store', async () => {
    const { clock, store, locks } = lockBench();
    const pause = gate();
    const hung = outcomeOf(locks.withLock('invoice:1', { ...TTL, maxHoldMs: 5_000 }, () => pause.passed));
    const next = locks.withLock('invoice:1', { ...TTL, waitMs: 60_000 }, () => 'entered');
    await clock.advance(9_000);
    expect(await next).toBe('entered');
    expect(await store.taken('invoice:1')).toBe(false);
    pause.open();
    expect(await hung).toMatchObject({ code: 'LEASE_LOST', reason: 'max-hold' });
    expect(locks.busy).toBe(false);
    await settled();
    expect(clock.armed).toBe(0);
  });
});

async function later(ticks: number, step: () => void): Promise<void> {
  for (let i = 0; i < ticks; i++) await Promise.resolve();
  step();
}
