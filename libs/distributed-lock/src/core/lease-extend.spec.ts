import { lockBench, outcomeOf } from '../../test/lock-bench.js';
import { after, refusal, silence } from '../../test/scripted-store.js';

const TTL = { ttlMs: 3_000 };

describe('extend', () => {
  it('renews at once, and from then on with the longer ttl', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    await lease.extend(60_000);
    expect(lease.remainingMs).toBe(60_000 * 0.99 - 2);
    await clock.advance(40_000);
    expect(store.renewals.map(({ atMs }) => atMs)).toEqual([0, 20_000, 40_000]);
    await lease.release();
  });

  it('renews at once, and from then on with the shorter ttl', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    await lease.extend(600);
    expect(lease.remainingMs).toBe(600 * 0.99 - 2);
    await clock.advance(400);
    expect(store.renewals.map(({ atMs }) => atMs)).toEqual([0, 200, 400]);
    await lease.release();
  });

  it('rejects when the store does not answer, while the lease is as good as it was', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const lease = await locks.acquire('invoice:1', TTL);
    await expect(lease.extend(3_600_000)).rejects.toMatchObject({ code: 'LEASE_UNCERTAIN' });
    expect(lease.remainingMs).toBe(2_968);
    lease.assertHeld();
    store.onRenew = (_, forward) => forward();
    await clock.advance(1_500);
    expect(lease.state.kind).toBe('acquired'); // it went on asking, at the pace of the old ttl
    expect(lease.remainingMs).toBeGreaterThan(3_000_000);
    await lease.release();
  });

  it('to a shorter ttl counts from the moment it is sent, because the store may have carried it out', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = async (_, forward) => {
      await forward();
      return refusal();
    };
    const lease = await locks.acquire('invoice:1', { ttlMs: 60_000 });
    await expect(lease.extend(1_000)).rejects.toMatchObject({ code: 'LEASE_UNCERTAIN' });
    expect(lease.remainingMs).toBe(988);
    store.onRenew = silence;
    clock.block(1_000);
    expect(await store.taken('invoice:1')).toBe(false);
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ code: 'LEASE_LOST' }));
  });

  it('to a shorter ttl is tried again in time', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const lease = await locks.acquire('invoice:1', { ttlMs: 60_000 });
    await outcomeOf(lease.extend(1_000));
    store.onRenew = (_, forward) => forward();
    await clock.advance(900);
    expect(lease.state.kind).toBe('acquired');
    await lease.release();
  });

  it('does not settle for a renewal that was sent earlier with the old ttl', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (_, forward) => after(clock, 300, forward);
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(1_100);
    const extended = lease.extend(60_000);
    await clock.advance(500);
    await extended;
    expect(store.renewals.map(({ claims }) => claims[0]?.ttlMs)).toEqual([3_000, 60_000]);
    await lease.release();
  });

  it('rejects with the loss when the store says that the lease is over', async () => {
    const { store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    await store.giveToAnother('invoice:1');
    await expect(lease.extend(5_000)).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'taken-over' });
    await expect(lease.extend(5_000)).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'taken-over' });
    expect(store.renewals).toHaveLength(1);
  });

  it('rejects once the lease was released, before or meanwhile', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (_, forward) => after(clock, 300, forward);
    const lease = await locks.acquire('invoice:1', TTL);
    const extending = outcomeOf(lease.extend(5_000));
    await lease.release();
    await clock.advance(300);
    expect(await extending).toMatchObject({ code: 'LOCK_NOT_HELD' });
    await expect(lease.extend(5_000)).rejects.toMatchObject({ code: 'LOCK_NOT_HELD' });
  });

  it.each([0, -1, NaN, Infinity, '30s', null, undefined])('refuses %p by name', async (ttlMs) => {
    const { store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    const refused = await outcomeOf(lease.extend(ttlMs as number));
    expect(refused).toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    expect((refused as Error).message).toContain('ttlMs');
    expect(store.renewals).toEqual([]);
    await lease.release();
  });

  it('refuses a ttl below minHoldMs, which a crash would then cut short', async () => {
    const { locks } = lockBench();
    const lease = await locks.acquire('invoice:1', { ...TTL, minHoldMs: 2_000 });
    await expect(lease.extend(1_999)).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    await lease.extend(2_000);
    await lease.release();
  });

  it('leaves the longer of both ttls to a release that nobody answers', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    store.onRelease = refusal;
    const lease = await locks.acquire('invoice:1', { ttlMs: 600 });
    await outcomeOf(lease.extend(20_000)); // may have been carried out
    await expect(lease.release()).rejects.toThrow('within 20000 ms');
    await clock.advance(19_000);
    const asked = store.releases.length;
    await clock.advance(1_500);
    expect(store.releases.length).toBeGreaterThanOrEqual(asked);
    await clock.advance(30_000);
    expect(clock.armed).toBe(0);
  });
});
