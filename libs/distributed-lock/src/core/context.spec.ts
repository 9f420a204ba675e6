import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { contextLeases, currentLease, requireLease } from './index.js';

const KEY = 'invoice:1';

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
