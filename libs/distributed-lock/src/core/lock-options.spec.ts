import { lockBench, ManualClock, outcomeOf } from '../../test/lock-bench.js';
import { ScriptedStore } from '../../test/scripted-store.js';
import { LockService, type LockOptions, type LockStore } from './index.js';

const KEY = 'invoice:1';
const REFUSED = ['negative', 'NaN', 'text', 'null', 'bigint', 'object', 'boolean'] as const;
const VALUES: Record<string, unknown> = {
  zero: 0,
  negative: -1,
  NaN: NaN,
  text: '30s',
  null: null,
  bigint: 15n,
  object: {},
  boolean: true,
  Infinity: Infinity,
};

/** What each option refuses besides {@link REFUSED}. */
const ALSO_REFUSED = {
  ttlMs: ['zero', 'Infinity'],
  waitMs: [],
  minHoldMs: ['Infinity'],
  maxHoldMs: ['zero'],
} as const;

const ROWS = Object.entries(ALSO_REFUSED).flatMap(([option, also]) =>
  [...REFUSED, ...also].map((value) => ({ option, value })),
);
const ACCEPTED = [
  { option: 'waitMs', value: 0 },
  { option: 'waitMs', value: Infinity },
  { option: 'minHoldMs', value: 0 },
  { option: 'maxHoldMs', value: Infinity },
  { option: 'maxHoldMs', value: 1_000 },
  { option: 'ttlMs', value: 2 ** 40 },
  { option: 'ttlMs', value: undefined },
  { option: 'waitMs', value: undefined },
  { option: 'maxHoldMs', value: undefined },
  { option: 'minHoldMs', value: undefined },
];

describe('an option of a lock (C042)', () => {
  it.each(ROWS)('$option refuses $value by name, in a call and at boot', async ({ option, value }) => {
    const { store, locks } = lockBench();
    const options = { [option]: VALUES[value] } as LockOptions;
    const work = jest.fn();
    const refused = (await outcomeOf(locks.withLock(KEY, options, work))) as Error;
    expect(refused).toMatchObject({ code: 'LOCK_CONFIG_INVALID', outcome: 'not-started' });
    expect(refused.message).toMatch(new RegExp(`^${option} is .*; write a number of milliseconds`));
    expect(() => locks.checkOptions(options)).toThrow(refused.message);
    await expect(locks.acquire(KEY, options)).rejects.toThrow(refused.message);
    await expect(locks.tryAcquire(KEY, options)).rejects.toThrow(refused.message);
    expect(work).not.toHaveBeenCalled();
    expect(store.acquires).toEqual([]);
    expect(locks.busy).toBe(false);
  });

  it.each(ROWS.filter(({ option }) => option !== 'minHoldMs'))(
    '$option refuses $value as a default when the service is made',
    ({ option, value }) => {
      const store = new ScriptedStore(new ManualClock());
      const make = (): LockService =>
        new LockService({ stores: { default: store }, defaults: { [option]: VALUES[value] } });
      expect(make).toThrow(expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }));
      expect(make).toThrow(option);
    },
  );

  it.each(ACCEPTED)('$option takes $value', async ({ option, value }) => {
    const { locks } = lockBench();
    expect(await locks.withLock(KEY, { [option]: value }, () => 'entered')).toBe('entered');
    await locks.close(0);
  });

  it('takes its default where it is undefined, and where it is not given', async () => {
    const { store, locks } = lockBench({ defaults: { ttlMs: 7_000, waitMs: undefined } });
    await locks.withLock(KEY, { ttlMs: undefined }, () => undefined);
    await locks.withLock(KEY, () => undefined);
    await locks.withLock(KEY, { ttlMs: 9_000 }, () => undefined);
    expect(store.acquires.map(({ ttlMs }) => ttlMs)).toEqual([7_000, 7_000, 9_000]);
  });

  it('ttlMs is 15 seconds by default', async () => {
    const { store, locks } = lockBench();
    await locks.withLock(KEY, () => undefined);
    expect(store.acquires[0]?.ttlMs).toBe(15_000);
  });

  it('ttlMs refuses what is shorter than the store can keep', async () => {
    const store = Object.assign(new ScriptedStore(new ManualClock()), { minTtlMs: 1_000 });
    const locks = new LockService({ stores: { default: store } });
    await expect(locks.acquire(KEY, { ttlMs: 999 })).rejects.toThrow('ttlMs is 999');
  });

  it('ttlMs refuses what is longer than the store can keep, and so does extend()', async () => {
    const { store, locks } = lockBench();
    Object.assign(store, { maxTtlMs: 40_000 });
    const refusal = { code: 'LOCK_CONFIG_INVALID', message: expect.stringContaining('at most 40000') };
    expect(await outcomeOf(locks.acquire(KEY, { ttlMs: 40_001 }))).toMatchObject(refusal);
    const lease = await locks.acquire(KEY, { ttlMs: 40_000 });
    expect(await outcomeOf(lease.extend(60_000))).toMatchObject(refusal);
    await lease.release();
  });

  it('minHoldMs refuses what is longer than the ttl: a crash would free the key too early', async () => {
    const { locks } = lockBench();
    await expect(locks.acquire(KEY, { ttlMs: 1_000, minHoldMs: 1_001 })).rejects.toThrow(
      'Raise ttlMs to at least minHoldMs',
    );
  });

  it('minHoldMs is refused by a store that cannot keep a released key', async () => {
    const store: LockStore = Object.assign(new ScriptedStore(new ManualClock()), {
      keepsReleasedKeys: false,
    });
    const locks = new LockService({ stores: { default: store } });
    await expect(locks.acquire(KEY, { minHoldMs: 10 })).rejects.toThrow('A scripted store cannot keep a key');
  });

  it('store names one that there is, or the call is refused with those that there are', async () => {
    const store = new ScriptedStore(new ManualClock());
    const locks = new LockService({ stores: { default: store, archive: store } });
    const refused = (await outcomeOf(locks.acquire(KEY, { store: 'archiv' }))) as Error;
    expect(refused).toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    expect(refused.message).toContain('There is no lock store "archiv". Configured: "default", "archive".');
    expect(() => locks.checkOptions({ store: 'toString' })).toThrow('There is no lock store "toString"');
    expect(() => locks.checkOptions({ store: '' })).toThrow('There is no lock store ""');
  });
});

describe('the work of a lock', () => {
  it.each([undefined, null, {}, 'work'])(
    'that is no function but %p is refused before anything is taken',
    async (work) => {
      const { store, locks } = lockBench();
      await expect(locks.withLock(KEY, {}, work as never)).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
      });
      await expect(locks.withLock(KEY, work as never)).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
      expect(store.acquires).toEqual([]);
    },
  );
});
