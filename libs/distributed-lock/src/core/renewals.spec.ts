import { lockBench, outcomeOf } from '../../test/lock-bench.js';
import { after, silence } from '../../test/scripted-store.js';
import type { Lease } from './index.js';

async function many(
  count: number,
  take: (i: number) => Promise<Lease>,
): Promise<{ leases: Lease[]; release: () => Promise<unknown> }> {
  const leases = await Promise.all(Array.from({ length: count }, (_, i) => take(i)));
  return { leases, release: () => Promise.all(leases.map((lease) => lease.release())) };
}

describe('the renewals of a store', () => {
  it('take one command for each hundred leases that were taken together', async () => {
    const { clock, store, locks } = lockBench();
    const { leases, release } = await many(1_000, (i) => locks.acquire(`invoice:${i}`, { ttlMs: 15_000 }));
    await clock.advance(14_999);
    expect(store.renewals).toHaveLength(2 * 10);
    expect(store.renewals.every(({ claims }) => claims.length === 100)).toBe(true);
    expect(leases.every(({ state }) => state.kind === 'acquired')).toBe(true);
    await release();
    expect(clock.armed).toBe(0);
  });

  it('take one command for each hundred leases that were taken one after another', async () => {
    const { clock, store, locks } = lockBench();
    const leases: Lease[] = [];
    for (let i = 0; i < 1_000; i++) {
      leases.push(await locks.acquire(`invoice:${i}`, { ttlMs: 15_000 }));
      clock.block(5);
    }
    await clock.advance(5_000);
    store.renewals.length = 0;
    await clock.advance(50_000);
    expect(store.renewals.length).toBeLessThanOrEqual((1_000 / 100) * 10 * 1.1);
    expect(leases.every(({ state }) => state.kind === 'acquired')).toBe(true);
    await Promise.all(leases.map((lease) => lease.release()));
  });

  it('of a few leases take few commands, also when they were taken one after another', async () => {
    const { clock, store, locks } = lockBench();
    const leases: Lease[] = [];
    for (let i = 0; i < 50; i++) {
      leases.push(await locks.acquire(`invoice:${i}`, { ttlMs: 15_000 }));
      clock.block(100);
    }
    await clock.advance(5_000);
    store.renewals.length = 0;
    await clock.advance(50_000);
    expect(store.renewals.length).toBeLessThanOrEqual(5 * 10);
    await Promise.all(leases.map((lease) => lease.release()));
  });

  it('of short and long leases do not share a command, so that a slow answer hurts only those in a hurry', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (_, forward) => after(clock, 80, forward);
    const { leases, release } = await many(50, (i) => locks.acquire(`invoice:${i}`, { ttlMs: 600 }));
    for (let i = 0; i < 40; i++) {
      const hurried = await locks.acquire(`invoice:hurried:${i}`, { ttlMs: 150 }); // has 50 ms for an answer
      await clock.advance(149);
      expect(hurried.state.kind).toBe('lease-lost');
    }
    expect(leases.filter(({ state }) => state.kind === 'lease-lost')).toEqual([]);
    await release();
  });

  it('keep different ttls each to its own third', async () => {
    const { clock, store, locks } = lockBench();
    const short = await locks.acquire('invoice:short', { ttlMs: 600 });
    const long = await locks.acquire('invoice:long', { ttlMs: 60_000 });
    await clock.advance(60_000);
    const sentFor = (key: string): number =>
      store.renewals.filter(({ claims }) => claims.some((claim) => claim.key === key)).length;
    expect(sentFor('invoice:short')).toBe(300);
    expect(sentFor('invoice:long')).toBe(3);
    await Promise.all([short.release(), long.release()]);
  });

  it('that hang in one batch do not hold up the others', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (claims, forward) =>
      claims.some(({ key }) => key === 'invoice:0') ? silence() : forward();
    const { leases, release } = await many(250, (i) => locks.acquire(`invoice:${i}`, { ttlMs: 3_000 }));
    await clock.advance(20_000);
    const lost = leases.filter(({ state }) => state.kind === 'lease-lost');
    expect(lost.length).toBeGreaterThan(0);
    expect(lost.length).toBeLessThanOrEqual(100);
    await release();
    expect(clock.armed).toBe(0);
  });

  it('leave out a lease that was released while its batch was under way, and go on with the others', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (_, forward) => after(clock, 100, forward);
    const { leases } = await many(3, (i) => locks.acquire(`invoice:${i}`, { ttlMs: 3_000 }));
    await clock.advance(1_050);
    await leases[1]?.release();
    await clock.advance(2_000);
    const renewed = store.renewals.at(-1)?.claims.map(({ key }) => key);
    expect(renewed).toEqual(['invoice:0', 'invoice:2']);
    expect(leases.map(({ state }) => state.kind)).toEqual(['renewing', 'released', 'renewing']);
    await Promise.all(leases.map((lease) => lease.release()));
    await clock.advance(1_000);
    expect(clock.armed).toBe(0);
  });

  it('leave out a lease that a listener of another one releases at the moment of sending', async () => {
    const { clock, store, locks } = lockBench();
    const first = await locks.acquire('invoice:1', { ttlMs: 3_000 });
    const second = await locks.acquire('invoice:2', { ttlMs: 3_000 });
    second.onStateChange(({ kind }) => void (kind === 'renewing' && outcomeOf(first.release())));
    await clock.advance(1_000);
    expect(store.renewals.map(({ claims }) => claims.map(({ key }) => key))).toEqual([['invoice:2']]);
    await second.release();
    await clock.advance(20_000);
    expect(store.renewals).toHaveLength(1);
    expect(clock.armed).toBe(0);
  });

  it('answer each lease for itself', async () => {
    const { clock, store, locks } = lockBench();
    const { leases } = await many(3, (i) => locks.acquire(`invoice:${i}`, { ttlMs: 3_000 }));
    await store.giveToAnother('invoice:1');
    await clock.advance(1_000);
    expect(leases.map(({ state }) => state.kind)).toEqual(['acquired', 'lease-lost', 'acquired']);
    await Promise.all(leases.map((lease) => lease.release()));
  });
});
