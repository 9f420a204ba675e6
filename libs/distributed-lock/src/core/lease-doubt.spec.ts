import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { after, refusal, silence } from '../../test/scripted-store.js';
import { currentLease } from './index.js';

const TTL = { ttlMs: 3_000 };
const UNCERTAIN = expect.objectContaining({ code: 'LEASE_UNCERTAIN', outcome: 'unknown' });
const HOUR_MS = 3_600_000;

describe('a lease whose renewals go unanswered', () => {
  it('passes until less than a third of the ttl is left, then refuses, then is lost at the deadline', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(1_967);
    expect(lease.state).toMatchObject({ kind: 'uncertain', doubt: 'unanswered' });
    lease.assertHeld();
    await clock.advance(2);
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    await clock.advance(998);
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    await clock.advance(1);
    expect(() => lease.assertHeld()).toThrow(
      expect.objectContaining({ code: 'LEASE_LOST', reason: 'expired' }),
    );
  });

  it('passes again after one confirmation', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(2_500);
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    store.onRenew = (_, forward) => forward();
    await clock.advance(300);
    lease.assertHeld();
    expect(lease.state.kind).toBe('acquired');
    await lease.release();
  });

  it('still lets a body that ends in time keep its result', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = silence;
    const pause = gate();
    const done = locks.withLock('invoice:1', TTL, () => pause.passed.then(() => 'settled'));
    await clock.advance(2_800);
    pause.open();
    expect(await done).toBe('settled');
    expect(clock.armed).toBe(0);
  });

  it('stops the first read of the context', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = silence;
    const pause = gate();
    const done = outcomeOf(
      locks.withLock('invoice:1', TTL, async () => {
        await pause.passed;
        return currentLease()?.token;
      }),
    );
    await clock.advance(2_500);
    pause.open();
    expect(await done).toMatchObject({ code: 'LEASE_UNCERTAIN' });
  });
});

describe('a lease whose clocks disagree (C084)', () => {
  it('is refused at once when only the wall clock went on, verified, and then held again', async () => {
    const { clock, store, locks } = lockBench();
    const answer = gate();
    const lease = await locks.acquire('invoice:1', TTL);
    store.onRenew = (_, forward) => answer.passed.then(forward);
    clock.stepWall(HOUR_MS);
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    expect(store.renewals).toHaveLength(1);
    expect(lease.state).toMatchObject({ kind: 'uncertain', doubt: 'clocks' });
    await clock.advance(500);
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    answer.open();
    await settled();
    lease.assertHeld();
    expect(lease.state.kind).toBe('acquired');
    await clock.advance(9_000);
    lease.assertHeld();
    await lease.release();
  });

  it('is lost when the store says that somebody else has the key', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    await store.giveToAnother('invoice:1');
    clock.stepWall(HOUR_MS);
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    await settled();
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'taken-over' });
  });

  it('is lost, reason clock-jump, when the store does not confirm it by the monotonic deadline', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const lease = await locks.acquire('invoice:1', TTL);
    clock.stepWall(HOUR_MS);
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    await clock.advance(2_967);
    expect(lease.state).toMatchObject({ kind: 'uncertain', doubt: 'clocks' });
    await clock.advance(1);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'clock-jump' });
  });

  it('is not held again by an answer to a renewal that was sent before the clocks disagreed', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (_, forward) => after(clock, 500, forward);
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(1_200); // a renewal is under way
    clock.stepWall(HOUR_MS);
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    await clock.advance(400); // answered, but it was asked before the machine slept
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    await clock.advance(600);
    lease.assertHeld();
    expect(store.renewals.map(({ atMs }) => atMs)).toEqual([1_000, 1_600]);
    await lease.release();
  });

  it('is asked about once per doubt, however often it is read', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = silence;
    const lease = await locks.acquire('invoice:1', TTL);
    clock.stepWall(HOUR_MS);
    for (let i = 0; i < 50; i++) expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    await settled();
    expect(store.renewals).toHaveLength(1);
    await lease.release();
  });

  it('gains nothing from a wall clock that was set back', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = silence;
    const lease = await locks.acquire('invoice:1', TTL);
    clock.stepWall(-HOUR_MS);
    expect(lease.remainingMs).toBe(2_968);
    await clock.advance(2_968);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'expired' });
  });

  it('goes on being renewed after a step back, and by the new wall time', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    clock.stepWall(-HOUR_MS);
    await clock.advance(1_000);
    lease.assertHeld();
    store.onRenew = silence;
    clock.stepWall(3_000); // a suspend after the correction is seen by the corrected clock
    expect(() => lease.assertHeld()).toThrow(UNCERTAIN);
    await lease.release();
  });

  it('is not entered: a process that was suspended between grant and body gives the lock back', async () => {
    const { clock, store, locks } = lockBench();
    store.onAcquire = async (_, forward) => {
      const answer = await forward();
      clock.stepWall(HOUR_MS);
      return answer;
    };
    const work = jest.fn();
    const refused = await outcomeOf(locks.withLock('invoice:1', TTL, work));
    expect(refused).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
    expect(work).not.toHaveBeenCalled();
    expect(await store.taken('invoice:1')).toBe(false);
  });
});
