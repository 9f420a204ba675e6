import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { after, refusal, silence } from '../../test/scripted-store.js';
import { currentLease, type Lease } from './index.js';

const TTL = { ttlMs: 3_000 };
/** 1 % and 2 ms are kept back for clocks of different speed. */
const RELIABLE_MS = 2_968;

describe('the deadline of a lease', () => {
  it('counts from before the acquire was sent, however slow the grant', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = (_, forward) => after(clock, 400, forward);
    const acquiring = locks.acquire('invoice:1', TTL);
    await clock.advance(400);
    expect((await acquiring).remainingMs).toBe(RELIABLE_MS - 400);
    await (await acquiring).release();
  });

  it('counts from before the renewal was sent, however slow the confirmation', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (_, forward) => after(clock, 300, forward);
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(1_300);
    expect(store.renewals).toHaveLength(1);
    expect(lease.remainingMs).toBe(RELIABLE_MS - 300);
    await lease.release();
  });

  it('is the moment of the loss when nothing was confirmed, not a moment later or earlier', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = silence;
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(RELIABLE_MS - 0.01);
    expect(lease.state.kind).toBe('uncertain');
    await clock.advance(0.01);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'expired' });
    expect(lease.remainingMs).toBe(0);
  });

  it('holds out against timers that fire a fraction of a millisecond early', async () => {
    const { clock, store, locks, events } = lockBench();
    store.onRenew = silence;
    const schedule = clock.schedule.bind(clock);
    clock.schedule = (delayMs, run) => schedule(delayMs - 0.4, run);
    const lease = await locks.acquire('invoice:1', TTL);
    clock.schedule = schedule;
    await clock.advance(RELIABLE_MS - 0.2);
    expect(lease.state.kind).toBe('uncertain');
    await clock.advance(0.2);
    expect(events.at(-1)).toMatchObject({ type: 'lease-lost', reason: 'expired' }); // without anybody's reading it
  });

  it('C101: is the first thing observed after the loop was blocked, before any timer could fire', async () => {
    const { clock, store, locks } = lockBench();
    const seen: unknown[] = [];
    const result = await outcomeOf(
      locks.withLock('invoice:1', TTL, async (lease) => {
        const { signal } = lease;
        clock.block(9_000);
        seen.push(
          lease.state.kind,
          lease.remainingMs,
          outcomeOfSync(() => lease.assertHeld()),
        );
        seen.push(
          outcomeOfSync(() => currentLease()),
          lease.signal.aborted,
          signal.aborted,
        );
        return 'late';
      }),
    );
    expect(seen).toEqual(['lease-lost', 0, 'LEASE_LOST', 'LEASE_LOST', true, true]);
    expect(result).toMatchObject({ code: 'LEASE_LOST', reason: 'expired', value: 'late' });
    expect(store.renewals).toEqual([]);
    expect(clock.armed).toBe(0);
  });

  it('C101: is noticed by a body that only reads its own end', async () => {
    const { clock, locks } = lockBench();
    const late = locks.withLock('invoice:1', TTL, () => {
      clock.block(9_000);
      return 'late';
    });
    await expect(late).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'expired', value: 'late' });
  });

  it('C138: keeps a timer that fires late, in a process that was stopped, from renewing what has ended', async () => {
    const { clock, store, locks, events } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    clock.block(9_000);
    await clock.advance(1);
    expect(store.renewals).toEqual([]);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'expired' });
    expect(events.filter(({ type }) => type === 'lease-lost')).toHaveLength(1);
    expect(clock.armed).toBe(0);
  });

  it('C138: ends quietly for a body that had settled before the process was stopped', async () => {
    const { clock, store, locks } = lockBench();
    const answer = gate();
    store.onRelease = async (_, forward) => answer.passed.then(forward);
    const done = locks.withLock('invoice:1', TTL, () => 'in time');
    await settled();
    clock.block(900);
    answer.open();
    expect(await done).toBe('in time');
    expect(store.renewals).toEqual([]);
  });

  it('works beyond the longest delay that Node can wait for', async () => {
    const { clock, locks } = lockBench();
    const ttlMs = 2 ** 31 * 3;
    const lease = await locks.acquire('invoice:1', { ttlMs });
    await clock.advance(2 ** 31 - 1);
    lease.assertHeld();
    expect(lease.state.kind).toBe('acquired');
    await lease.release();
    expect(clock.armed).toBe(0);
  });

  it('max-hold: ends the lease on time although every renewal is confirmed', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', { ...TTL, maxHoldMs: 4_500 });
    await clock.advance(4_499);
    expect(store.renewals).toHaveLength(4);
    expect(lease.remainingMs).toBe(1);
    await clock.advance(1);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'max-hold' });
    await clock.advance(9_000);
    expect(store.renewals).toHaveLength(4);
  });

  it('max-hold: is seen after a blocked loop as well, without a timer', async () => {
    const { clock, locks } = lockBench();
    const late = locks.withLock('invoice:1', { ...TTL, maxHoldMs: 500 }, (lease) => {
      clock.block(600);
      lease.assertHeld();
    });
    await expect(late).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'max-hold' });
  });

  it('max-hold: gives way to an expiry that came first', async () => {
    const { clock, locks } = lockBench();
    const late = locks.withLock('invoice:1', { ...TTL, maxHoldMs: 5_000 }, () => clock.block(60_000));
    await expect(late).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
  });

  it('says once that a lock is held for very long', async () => {
    const { clock, locks, events } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(90_000);
    const long = events.filter(({ type }) => type === 'held-long');
    expect(long).toEqual([expect.objectContaining({ key: 'invoice:1', token: lease.token, heldMs: 30_000 })]);
    await lease.release();
  });

  it('is tracked with one timer per lease and one per store', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const leases: Lease[] = [];
    for (let i = 0; i < 20; i++)
      leases.push(await locks.acquire(`invoice:${i}`, { ...TTL, maxHoldMs: 9_000 }));
    expect(clock.armed).toBe(21);
    for (const lease of leases) await lease.release();
    expect(clock.armed).toBe(0);
  });
});

/** What a synchronous step came to: its result, or the code of its error. */
function outcomeOfSync(step: () => unknown): unknown {
  try {
    return step();
  } catch (error) {
    return (error as { code: unknown }).code;
  }
}
