import { lockBench, settled } from '../../test/lock-bench.js';
import { after, refusal, silence } from '../../test/scripted-store.js';
import type { RenewalAnswer } from './index.js';

const TTL = { ttlMs: 3_000 };

describe('the renewal of a lease', () => {
  it('is sent at each third of the ttl', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(5_999);
    expect(store.renewals.map(({ atMs }) => atMs)).toEqual([1_000, 2_000, 3_000, 4_000, 5_000]);
    expect(await store.taken('invoice:1')).toBe(true);
    await lease.release();
    expect(await store.taken('invoice:1')).toBe(false);
  });

  it('carries owner id and ttl, and moves the deadline when it is confirmed', async () => {
    const { clock, store, locks, events } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    const states: string[] = [];
    lease.onStateChange(({ kind }) => states.push(kind));
    await clock.advance(1_000);
    expect(store.renewals[0]?.claims).toEqual([{ key: 'invoice:1', ownerId: lease.ownerId, ttlMs: 3_000 }]);
    expect(states).toEqual(['renewing', 'acquired']);
    expect(lease.remainingMs).toBe(2_968);
    expect(events.at(-1)).toMatchObject({ type: 'renewed', token: lease.token, lateMs: 0 });
    await lease.release();
  });

  it('tells how late it was sent', async () => {
    const { clock, locks, events } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    clock.block(1_700);
    await clock.advance(0);
    expect(events.at(-1)).toMatchObject({ type: 'renewed', lateMs: 700 });
    await lease.release();
  });

  it('is never under way twice, whoever asks for it', async () => {
    const { clock, store, locks } = lockBench();
    let underWay = 0;
    let most = 0;
    store.onRenew = (_, forward) => {
      most = Math.max(most, ++underWay);
      return after(clock, 900, forward).finally(() => (underWay -= 1));
    };
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(1_100);
    const extensions = [lease.extend(4_000), lease.extend(5_000), lease.extend(6_000)];
    clock.stepWall(3_600_000);
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ code: 'LEASE_UNCERTAIN' }));
    await clock.advance(12_000);
    await Promise.all(extensions);
    expect(most).toBe(1);
    expect(lease.state.kind).not.toBe('lease-lost');
    await lease.release();
  });

  it('is not sent twice when the schedule itself is what finds the clocks in doubt', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    clock.stepWall(3_600_000);
    await clock.advance(1_000);
    expect(store.renewals).toHaveLength(1);
    expect(lease.state.kind).toBe('acquired');
    await lease.release();
  });

  it('leaves a lease uncertain when it is rejected or unanswered, and its deadline where it was', async () => {
    for (const trouble of [refusal, silence]) {
      const { clock, store, locks, events } = lockBench();
      store.onRenew = trouble;
      const lease = await locks.acquire('invoice:1', TTL);
      await clock.advance(2_001);
      expect(lease.state).toMatchObject({ kind: 'uncertain', doubt: 'unanswered' });
      expect(lease.remainingMs).toBe(2_968 - 2_001);
      expect(events).toContainEqual(
        expect.objectContaining({ type: 'renewal-unanswered', token: lease.token }),
      );
      store.onRenew = (_, forward) => forward();
      await clock.advance(960);
      expect(lease.state.kind).not.toBe('lease-lost');
      await lease.release();
    }
  });

  it('that hangs is given up in time for two more', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = silence;
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(2_100);
    store.onRenew = (_, forward) => forward();
    await clock.advance(500);
    expect(store.renewals.length).toBeGreaterThan(1);
    expect(lease.state.kind).toBe('acquired');
    await lease.release();
  });

  it('is repeated a bounded number of times while the store refuses every one', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = refusal;
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(3_000);
    expect(lease.state.kind).toBe('lease-lost');
    expect(store.renewals.length).toBeGreaterThan(4);
    expect(store.renewals.length).toBeLessThan(30);
    const times = store.renewals.map(({ atMs }) => atMs);
    const gaps = times.slice(1).map((atMs, i) => atMs - (times[i] as number));
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(3_000 / 60);
  });

  it('C089: that is denied ends the lease at once and never takes the key again', async () => {
    const { clock, store, locks, events } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    await store.drop('invoice:1');
    await clock.advance(1_000);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'taken-over' });
    expect(events.at(-1)).toMatchObject({ type: 'lease-lost', reason: 'taken-over', token: lease.token });
    await clock.advance(10_000);
    expect(await store.taken('invoice:1')).toBe(false);
    expect(store.renewals).toHaveLength(1);
    expect(store.acquires).toHaveLength(1);
    expect(clock.armed).toBe(0);
  });

  it.each([
    ["'0'", ['0']],
    ['0n', [0n]],
    ['1', [1]],
    ['true', [true]],
    ["'OK'", ['OK']],
    ['a Buffer', [Buffer.from('renewed')]],
    ['null', [null]],
    ['undefined', [undefined]],
  ])('C070: is a loss when the store answers %s', async (_, answers) => {
    const { clock, store, locks } = lockBench();
    store.onRenew = () => Promise.resolve(answers);
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(1_000);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'taken-over' });
  });

  it.each([
    ['null', null],
    ['no answers', []],
    ['more answers than questions', ['renewed', 'renewed']],
    ['a word instead of a list', 'renewed'],
    ['undefined', undefined],
  ])('C070: is unanswered when the store says %s for the whole batch', async (_, answers) => {
    const { clock, store, locks } = lockBench();
    store.onRenew = () => Promise.resolve(answers as unknown as RenewalAnswer[]);
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(1_000);
    expect(lease.state).toMatchObject({ kind: 'uncertain', doubt: 'unanswered' });
    store.onRenew = (_claims, forward) => forward();
    await clock.advance(900);
    expect(lease.state.kind).toBe('acquired');
    await lease.release();
  });

  it('survives a store that throws before it returns a promise', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = () => {
      throw new Error('not connected');
    };
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(1_000);
    expect(lease.state).toMatchObject({ kind: 'uncertain', doubt: 'unanswered' });
    await lease.release();
  });

  it('that is answered after it was given up changes nothing', async () => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (_, forward) => after(clock, 1_500, forward);
    const lease = await locks.acquire('invoice:1', TTL);
    await clock.advance(2_967);
    expect(lease.state.kind).toBe('uncertain');
    await clock.advance(1);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'expired' });
    await clock.advance(10_000);
    expect(lease.state).toEqual({ kind: 'lease-lost', reason: 'expired' });
    expect(clock.armed).toBe(0);
  });

  it('goes on although a listener of its events and one of its states throw or reject', async () => {
    const { clock, store, locks } = lockBench();
    const broken: (() => unknown)[] = [
      () => {
        throw new Error('broken');
      },
      () => Promise.reject(new Error('broken')),
    ];
    for (const listener of broken) locks.events.subscribe(listener);
    const lease = await locks.acquire('invoice:1', TTL);
    const seen: string[] = [];
    for (const listener of broken) lease.onStateChange(listener);
    lease.onStateChange(({ kind }) => seen.push(kind));
    await clock.advance(1_000);
    await settled();
    expect(seen).toEqual(['renewing', 'acquired']);
    expect(store.renewals).toHaveLength(1);
    await lease.release();
  });

  it('tells every listener each state once, also when one of them releases the lease', async () => {
    const { clock, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    const seen: string[] = [];
    lease.onStateChange(({ kind }) => void (kind === 'renewing' && lease.release()));
    lease.onStateChange(({ kind }) => seen.push(kind));
    await clock.advance(1_000);
    expect(seen).toEqual(['released']);
    expect(clock.armed).toBe(0);
  });

  it('lets a listener subscribe another one, which then hears of the next state', async () => {
    const { clock, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    let heard = 0;
    const subscribe = (): void => {
      heard += 1;
      if (heard < 100) lease.onStateChange(() => subscribe());
    };
    lease.onStateChange(() => subscribe());
    await clock.advance(1_000);
    expect(heard).toBe(3); // one at 'renewing', two at 'acquired'
    await lease.release();
  });
});
