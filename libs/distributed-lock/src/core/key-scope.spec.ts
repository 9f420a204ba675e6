import { lockBench, outcomeOf } from '../../test/lock-bench.js';
import { LockService } from './index.js';

const KEY = 'invoice:1';

describe('the scope of a key', () => {
  it('is read for every call, and becomes part of what the store and the fence know', async () => {
    let tenant = 'a';
    const { store, locks } = lockBench({ namespace: 'billing', scope: () => tenant });
    await locks.withLock(KEY, ({ key, qualifiedKey }) =>
      expect([key, qualifiedKey]).toEqual([KEY, 'billing:~a:invoice:1']),
    );
    tenant = 'b';
    await locks.withLock(KEY, () => undefined);
    await locks.withLock(KEY, { scope: 'global' }, () => undefined);
    expect(store.acquires.map(({ key }) => key)).toEqual([
      'billing:~a:invoice:1',
      'billing:~b:invoice:1',
      'billing:~:invoice:1',
    ]);
    expect(locks.qualify(KEY)).toBe('billing:~b:invoice:1');
    expect(locks.qualify(KEY, 'global')).toBe('billing:~:invoice:1');
  });

  it.each([undefined, null, '', 7, 'a\uD83D', 'a'.repeat(2_000)])(
    'refuses the call when it is %p: the tenant would be anybody’s guess',
    async (tenant) => {
      const { store, locks } = lockBench({ scope: () => tenant as string });
      const work = jest.fn();
      expect(await outcomeOf(locks.withLock(KEY, work))).toMatchObject({
        code: 'LOCK_KEY_INVALID',
        outcome: 'not-started',
      });
      await locks.withLock(KEY, { scope: 'global' }, () => undefined);
      expect(work).not.toHaveBeenCalled();
      expect(store.acquires).toHaveLength(1);
    },
  );

  it('passes on what it throws, and nothing is locked', async () => {
    const { store, locks } = lockBench({
      scope: () => {
        throw new Error('no request');
      },
    });
    await expect(locks.withLock(KEY, () => undefined)).rejects.toThrow('no request');
    expect(store.acquires).toEqual([]);
  });

  it('cannot be imitated by a key or a namespace', async () => {
    const one = lockBench({ namespace: 'a:b' });
    const two = lockBench({ namespace: 'a' });
    expect(one.locks.qualify('c')).not.toBe(two.locks.qualify('b:c'));
  });

  it.each(['', 7, null, 'a\uD83D'])('refuses %p as a namespace when the service is made', (namespace) => {
    const { store } = lockBench();
    const make = (): LockService =>
      new LockService({ stores: { default: store }, namespace: namespace as string });
    expect(make).toThrow(expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }));
    expect(make).toThrow('namespace');
  });
});
