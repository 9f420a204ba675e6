import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  DistributedLockModule,
  Idempotent,
  IdempotencyService,
  memoryIdempotencyStore,
  memoryStore,
  type IdempotencyDefaults,
  type IdempotentOptions,
} from 'nestjs-distributed-lock';

const DURATIONS = ['leaseMs', 'retentionMs', 'unknownRetentionMs'] as const;
const COUNTS = ['maxAttempts', 'maxResultBytes'] as const;
const NO_DURATION = [0, -1, NaN, '30s', null, Infinity, 10n];
const NO_COUNT = [0, -1, NaN, 1.5, '5', null, Infinity];
const NO_WAIT = [-1, NaN, '30s', null];

const WRONG: readonly (readonly [name: string, value: unknown])[] = [
  ...DURATIONS.flatMap((name) => NO_DURATION.map((value) => [name, value] as const)),
  ...COUNTS.flatMap((name) => NO_COUNT.map((value) => [name, value] as const)),
  ...NO_WAIT.map((value) => ['waitMs', value] as const),
  ['onCrash', 'retry'],
  ['onCrash', null],
];
const RIGHT: readonly IdempotencyDefaults[] = [
  { waitMs: 0 },
  { waitMs: Infinity },
  { retentionMs: 1, unknownRetentionMs: 1, maxAttempts: 1, maxResultBytes: 1 },
  { leaseMs: undefined, retentionMs: undefined, waitMs: undefined, maxAttempts: undefined },
];

function appWith(defaults: IdempotencyDefaults, options: IdempotentOptions = {}): Promise<unknown> {
  @Injectable()
  class Billing {
    @Idempotent('payout:<id>', options)
    async pay(id: string): Promise<string> {
      return Promise.resolve(id);
    }
  }
  const idempotency = { store: memoryIdempotencyStore(), defaults };
  const imports = [DistributedLockModule.forRoot({ store: memoryStore(), idempotency })];
  const building = Test.createTestingModule({ imports, providers: [Billing] }).compile();
  return building.then(async (app) => {
    const answer = await app.get(Billing).pay('1');
    await app.close();
    return answer;
  });
}

describe('C042: options of idempotent calls', () => {
  it.each(WRONG)('refuses %s = %p at boot, for all calls and for one method', async (name, value) => {
    const options = { [name]: value } as IdempotencyDefaults;
    const sentence = new RegExp(`${name} is .*; write`);
    if (name !== 'onCrash') await expect(appWith(options)).rejects.toThrow(sentence);
    await expect(appWith({}, options)).rejects.toThrow(sentence);
  });

  it.each(WRONG)('refuses %s = %p of a single call, which does not run', async (name, value) => {
    const service = new IdempotencyService({ store: memoryIdempotencyStore() });
    const work = jest.fn();
    const options = { [name]: value } as IdempotencyDefaults;
    await expect(service.runOnce('k', options, work)).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    expect(work).not.toHaveBeenCalled();
    await service.close();
  });

  it.each(RIGHT)('takes %p', async (options) => {
    await expect(appWith(options)).resolves.toBe('1');
    await expect(appWith({}, options)).resolves.toBe('1');
  });

  it('takes a lease of 1 ms, which on a slow machine is over before the call is', async () => {
    for (const [defaults, options] of [
      [{ leaseMs: 1 }, {}],
      [{}, { leaseMs: 1 }],
    ] as const) {
      const answer = await appWith(defaults, options).catch(({ code }: { code: string }) => code);
      expect(['1', 'IDEMPOTENCY_LEASE_LOST']).toContain(answer);
    }
  });

  it('means the default by undefined alone, and a value by 0', async () => {
    const store = memoryIdempotencyStore();
    const claim = jest.spyOn(store, 'claim');
    const service = new IdempotencyService({ store, defaults: { leaseMs: 5_000 } });
    await service.runOnce('1', { leaseMs: undefined }, () => 1);
    await service.runOnce('2', { leaseMs: 70_000 }, () => 1);
    await service.runOnce('3', {}, () => service.runOnce('4', { waitMs: 0 }, () => 1));
    expect(claim.mock.calls.map(([{ leaseMs }]) => leaseMs)).toEqual([5_000, 70_000, 5_000, 5_000]);
    await service.close();
  });
});
