import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { after, refusal, ScriptedStore, silence } from '../../test/scripted-store.js';
import { LockService, systemClock, type Clock, type Timer } from './index.js';
import { memoryStore } from '../stores/memory/index.js';

const TTL = { ttlMs: 3_000 };

describe('the release of a lease', () => {
  it('frees the key, ends every timer, aborts the signal and is told once', async () => {
    const { clock, store, locks, events } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    const { signal } = lease;
    expect(await lease.release()).toBe('released');
    expect(lease.state).toEqual({ kind: 'released' });
    expect(signal.reason).toMatchObject({ code: 'LOCK_NOT_HELD' });
    expect(await store.taken('invoice:1')).toBe(false);
    expect(events.filter(({ type }) => type === 'released')).toHaveLength(1);
    expect(clock.armed).toBe(0);
    expect(locks.busy).toBe(false);
  });

  it('C032: is one attempt however often it is asked for, with one answer', async () => {
    const { store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    const answers = await Promise.all([lease.release(), lease.release(), lease.release()]);
    expect(answers).toEqual(['released', 'released', 'released']);
    expect(await lease.release()).toBe('released');
    expect(store.releases).toHaveLength(1);
  });

  it('C032: of a lease that ran out a moment ago is "already-gone", neither an error nor a retry', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    clock.block(3_001);
    expect(await lease.release()).toBe('already-gone');
    expect(store.releases).toHaveLength(1);
    expect(clock.armed).toBe(0);
  });

  it.each([
    ['is rejected', refusal],
    ['is never answered', silence],
  ])('C032: that %s does not replace the result of the work, and is repeated behind', async (_, trouble) => {
    const { clock, store, locks, events } = lockBench();
    store.onRelease = trouble;
    const work = jest.fn(() => 'settled');
    const done = locks.withLock('invoice:1', TTL, work);
    await clock.advance(1_000);
    expect(await done).toBe('settled');
    expect(events).toContainEqual(expect.objectContaining({ type: 'release-unanswered' }));
    store.onRelease = (_request, forward) => forward();
    await clock.advance(1_500);
    expect(await store.taken('invoice:1')).toBe(false);
    expect(clock.armed).toBe(0);
    expect(work).toHaveBeenCalledTimes(1);
  });

  it('C032: that fails does not replace the error of the work either', async () => {
    const { clock, store, locks } = lockBench();
    store.onRelease = refusal;
    const broken = new Error('broken');
    expect(await outcomeOf(locks.withLock('invoice:1', TTL, () => Promise.reject(broken)))).toBe(broken);
    await clock.advance(10_000);
    expect(clock.armed).toBe(0);
  });

  it('rejects for the owner of a handle when the store is away, and says when the key is free', async () => {
    const { clock, store, locks } = lockBench();
    store.onRelease = refusal;
    const lease = await locks.acquire('invoice:1', TTL);
    const refused = await outcomeOf(lease.release());
    expect(refused).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'committed' });
    expect((refused as Error).message).toContain('within 3000 ms');
    expect((refused as Error).cause).toMatchObject({ message: 'connection refused' });
    expect(locks.busy).toBe(false);
    await clock.advance(10_000);
    expect(clock.armed).toBe(0);
  });

  it('at the end of `await using` never replaces the result of the block', async () => {
    const { clock, store, locks } = lockBench();
    store.onRelease = refusal;
    const lease = await locks.acquire('invoice:1', TTL);
    await lease[Symbol.asyncDispose]();
    expect(lease.state.kind).toBe('released');
    await clock.advance(10_000);
  });

  it.each(["'0'", '0n', 'null', 'a Buffer'])(
    'C070: is no success when the store answers %s',
    async (said) => {
      const { store, locks } = lockBench();
      const answer = { "'0'": '0', '0n': 0n, null: null, 'a Buffer': Buffer.from('released') }[said];
      store.onRelease = () => Promise.resolve(answer);
      expect(await (await locks.acquire('invoice:1', TTL)).release()).toBe('already-gone');
    },
  );

  it('stops the renewals at once, also one that was due at the same moment', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    store.onRelease = (_, forward) => after(clock, 900, forward);
    clock.block(1_000);
    const releasing = lease.release();
    await clock.advance(900);
    expect(await releasing).toBe('released');
    expect(store.renewals).toEqual([]);
  });

  it('C080: is not undone by a renewal that is answered late, in 1 000 rounds with different delays', async () => {
    const { clock, store, locks, events } = lockBench();
    store.onRenew = (_, forward) => after(clock, 1 + Math.random() * 99, forward);
    store.onRelease = (_, forward) => after(clock, Math.random() * 100, forward);
    for (let group = 0; group < 20; group++) {
      const leases = await Promise.all(fifty((i) => locks.acquire(`invoice:${i}`, { ttlMs: 300 })));
      const states: string[] = [];
      for (const lease of leases) lease.onStateChange(({ kind }) => states.push(kind));
      await clock.advance(100.5);
      const released = Promise.all(leases.map((lease) => lease.release()));
      await clock.advance(200);
      expect(await released).toEqual(fifty(() => 'released'));
      expect(states).toEqual([...fifty(() => 'renewing'), ...fifty(() => 'released')]);
      expect(await Promise.all(fifty((i) => store.taken(`invoice:${i}`)))).toEqual(fifty(() => false));
      expect(clock.armed).toBe(0);
    }
    expect(store.renewals.flatMap(({ claims }) => claims)).toHaveLength(1_000);
    expect(events.some(({ type }) => type === 'lease-lost')).toBe(false);
  });

  it('C001: leaves no timer, no lease and no renewal in 10 000 rounds with random delays', async () => {
    const clock = new CountingClock();
    const store = new ScriptedStore(clock);
    const locks = new LockService({ stores: { default: store }, clock });
    const delayed = <T>(_: unknown, forward: () => Promise<T>): Promise<T> =>
      Math.random() < 0.5 ? forward() : after(systemClock, Math.random() * 5, forward);
    store.onAcquire = store.onRenew = store.onRelease = delayed;
    const round = async (i: number): Promise<void> => {
      const aborter = new AbortController();
      if (i % 5 === 0) setTimeout(() => aborter.abort(), Math.random() * 5);
      const taken = await outcomeOf(locks.acquire(`invoice:${i}`, { ttlMs: 60, signal: aborter.signal }));
      if (!('release' in taken)) return;
      if (i % 3 === 0) await after(systemClock, Math.random() * 40, settled);
      await outcomeOf(taken.release());
    };
    for (let group = 0; group < 40; group++) {
      await Promise.all(Array.from({ length: 250 }, (_, i) => round(group * 250 + i)));
    }
    expect(locks.busy).toBe(false);
    await locks.close(); // waits for what was given up in the middle of an answer
    expect(clock.armed).toBe(0);
    const renewed = store.renewals.length;
    await after(systemClock, 100, settled);
    expect(store.renewals).toHaveLength(renewed);
    const left = Array.from({ length: 10_000 }, (_, i) => store.taken(`invoice:${i}`));
    expect((await Promise.all(left)).filter(Boolean)).toEqual([]);
  });

  it('C001: on the real clock, without an await between acquire and release, leaves nothing either', async () => {
    const store = memoryStore();
    const locks = new LockService({ stores: { default: store } });
    const released = Array.from({ length: 1_000 }, (_, i) =>
      locks.acquire(`invoice:${i}`, { ttlMs: 3_000 }).then((lease) => lease.release()),
    );
    expect(new Set(await Promise.all(released))).toEqual(new Set(['released']));
    expect(locks.busy).toBe(false);
    await locks.close();
  });

  it('keeps the key for the rest of minHoldMs, counted from the grant', async () => {
    const { clock, store, locks } = lockBench();
    const pause = gate();
    const done = locks.withLock('tick', { ...TTL, minHoldMs: 2_000 }, () => pause.passed);
    await clock.advance(500);
    pause.open();
    await done;
    expect(store.releases[0]).toMatchObject({ keepForMs: 1_500 });
    await clock.advance(1_499);
    expect(await store.taken('tick')).toBe(true);
    await clock.advance(1);
    expect(await store.taken('tick')).toBe(false);
  });

  it('C112: never touches the lease of a successor', async () => {
    const { clock, store, locks } = lockBench();
    const lease = await locks.acquire('invoice:1', TTL);
    await store.giveToAnother('invoice:1');
    expect(await lease.release()).toBe('already-gone');
    await settled();
    expect(await store.taken('invoice:1')).toBe(true);
    expect(clock.armed).toBe(0);
  });
});

function fifty<T>(make: (i: number) => T): T[] {
  return Array.from({ length: 50 }, (_, i) => make(i));
}

/** The real clock, with an account of its timers. */
class CountingClock implements Clock {
  armed = 0;
  readonly monotonicMs = systemClock.monotonicMs;
  readonly wallMs = systemClock.wallMs;

  schedule(delayMs: number, run: () => void): Timer {
    this.armed += 1;
    let open = true;
    const end = (): void => {
      if (open) this.armed -= 1;
      open = false;
    };
    const timer = systemClock.schedule(delayMs, () => {
      end();
      run();
    });
    return {
      cancel: () => {
        end();
        timer.cancel();
      },
    };
  }
}
