import { gate, lockBench, ManualClock, outcomeOf, settled } from '../../test/lock-bench.js';
import { after, refusal, ScriptedStore, silence } from '../../test/scripted-store.js';
import { LockService } from './index.js';

const KEY = 'invoice:1';
const TTL = { ttlMs: 3_000 };

describe('closing the service', () => {
  it('refuses new calls at once, without asking the store', async () => {
    const { store, locks, events } = lockBench();
    await locks.close();
    expect(await outcomeOf(locks.withLock(KEY, () => 'entered'))).toMatchObject({
      code: 'SHUTTING_DOWN',
      outcome: 'not-started',
      statusCode: 503,
    });
    await expect(locks.tryAcquire(KEY)).rejects.toMatchObject({ code: 'SHUTTING_DOWN' });
    expect(store.acquires).toEqual([]);
    expect(events).toContainEqual(expect.objectContaining({ type: 'refused', code: 'SHUTTING_DOWN' }));
  });

  it.each([
    ['in the queue of this process', 'local'],
    ['for a busy key', 'busy'],
    ['for an answer of the store', 'answer'],
  ])('refuses calls that wait %s', async (_, where) => {
    const { clock, store, locks } = lockBench();
    const pause = gate();
    const held = where === 'local' ? locks.withLock(KEY, TTL, () => pause.passed) : undefined;
    if (where === 'busy') await store.giveToAnother(KEY);
    if (where === 'answer') store.onAcquire = (_claim, forward) => after(clock, 400, forward);
    const work = jest.fn();
    const waiting = outcomeOf(locks.withLock(KEY, { ...TTL, waitMs: Infinity }, work));
    await clock.advance(50);
    const closing = locks.close();
    await clock.advance(400);
    expect(await waiting).toMatchObject({ code: 'SHUTTING_DOWN' });
    pause.open();
    await Promise.all([held, clock.advance(1_000), closing]);
    expect(work).not.toHaveBeenCalled();
    if (where !== 'busy') expect(await store.taken(KEY)).toBe(false);
    expect(clock.armed).toBe(0);
    expect(locks.busy).toBe(false);
    expect(store.closed).toBe(1);
  });

  it('lets running work finish, with nested calls and renewals, and closes the store only then', async () => {
    const { clock, store, locks } = lockBench();
    const pause = gate();
    const running = locks.withLock(KEY, TTL, async () => {
      await pause.passed;
      return locks.withLock(KEY, () => 'finished');
    });
    await settled();
    const closing = locks.close(10_000);
    await clock.advance(5_000);
    expect(store.renewals).toHaveLength(5);
    expect(store.closed).toBe(0);
    pause.open();
    expect(await running).toBe('finished');
    await closing;
    expect(store.closed).toBe(1);
    expect(await store.taken(KEY)).toBe(false);
    expect(clock.armed).toBe(0);
  });

  it('takes what is held after the grace time from its holder, and gives it back', async () => {
    const { clock, store, locks, events } = lockBench();
    const pause = gate();
    const body = outcomeOf(locks.withLock('body', TTL, () => pause.passed.then(() => 'late')));
    const handle = await locks.acquire('handle', TTL);
    const closing = locks.close(2_000);
    await clock.advance(1_999);
    handle.assertHeld();
    await clock.advance(1);
    await closing;
    expect(handle.state).toEqual({ kind: 'lease-lost', reason: 'session-ended' });
    expect([await store.taken('body'), await store.taken('handle')]).toEqual([false, false]);
    expect(store.closed).toBe(1);
    expect(clock.armed).toBe(0);
    expect(events.filter(({ type }) => type === 'lease-lost')).toHaveLength(2);
    pause.open();
    expect(await body).toMatchObject({ code: 'LEASE_LOST', reason: 'session-ended', value: 'late' });
    expect(locks.busy).toBe(false);
  });

  it('keeps the rest of minHoldMs', async () => {
    const { clock, store, locks } = lockBench();
    await locks.acquire('tick', { ttlMs: 3_000, minHoldMs: 3_000 });
    const closing = locks.close(0);
    await clock.advance(0);
    await closing;
    expect(store.releases[0]).toMatchObject({ keepForMs: 3_000 });
    expect(await store.taken('tick')).toBe(true);
  });

  it('gives back, before it closes the store, what was granted while it closed', async () => {
    const { clock, store, locks } = lockBench();
    const log: string[] = [];
    store.onAcquire = (_, forward) => after(clock, 100, forward);
    store.onRelease = (_, forward) => after(clock, 100, forward).finally(() => log.push('released'));
    store.onClose = async () => void log.push('closed');
    const call = outcomeOf(locks.acquire(KEY, TTL));
    await clock.advance(50);
    const closing = locks.close();
    await clock.advance(500);
    expect(await call).toMatchObject({ code: 'SHUTTING_DOWN' });
    await closing;
    expect(log.at(-1)).toBe('closed');
    expect(log).toContain('released');
    expect(await store.taken(KEY)).toBe(false);
  });

  it('is harmless twice, also at once', async () => {
    const { store, locks } = lockBench();
    await Promise.all([locks.close(), locks.close()]);
    await locks.close();
    expect(store.closed).toBe(1);
  });

  it('ends although the store hangs in everything', async () => {
    const { clock, store, locks } = lockBench();
    await locks.acquire(KEY, TTL);
    store.onRelease = store.onRenew = store.onAcquire = store.onClose = silence;
    const waiting = outcomeOf(locks.acquire('other', TTL));
    let closed = false;
    const closing = locks.close(2_000).then(() => (closed = true));
    await clock.advance(15_000);
    expect(closed).toBe(true);
    await closing;
    expect(await waiting).toMatchObject({ code: 'SHUTTING_DOWN' });
    expect(clock.armed).toBe(0);
  });

  it('closes every store although one of them rejects and one throws', async () => {
    const clock = new ManualClock();
    const stores = {
      default: new ScriptedStore(clock),
      b: new ScriptedStore(clock),
      c: new ScriptedStore(clock),
    };
    stores.default.onClose = () => {
      throw new Error('broken');
    };
    stores.b.onClose = refusal;
    const locks = new LockService({ stores, clock });
    await locks.close();
    expect(Object.values(stores).map(({ closed }) => closed)).toEqual([1, 1, 1]);
    expect(clock.armed).toBe(0);
  });

  it('stops asking for what the store did not take back', async () => {
    const { clock, store, locks } = lockBench();
    store.onRelease = refusal;
    await outcomeOf((await locks.acquire(KEY, { ttlMs: 60_000 })).release());
    const closing = locks.close();
    await clock.advance(2_000);
    await closing;
    const asked = store.releases.length;
    await clock.advance(60_000);
    expect(store.releases).toHaveLength(asked);
    expect(clock.armed).toBe(0);
  });

  it.each([-1, NaN, Infinity, '10s'])('refuses %p as grace time, as a rejection', async (graceMs) => {
    const { locks } = lockBench();
    await expect(locks.close(graceMs as number)).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    await locks.close();
  });
});
