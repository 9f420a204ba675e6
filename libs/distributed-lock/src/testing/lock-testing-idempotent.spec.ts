import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';

import { IdempotencyService } from '../idempotency/index.js';
import { Idempotent, Locked, type IdempotencyModuleOptions } from '../nest/index.js';
import { memoryIdempotencyStore } from '../stores/memory/index.js';
import { LockTesting } from './lock-testing.js';

@Injectable()
class Payouts {
  runs = 0;
  work: () => Promise<void> = () => Promise.resolve();

  @Locked('invoice:<id>', { waitMs: 0 })
  @Idempotent('payout:<id>', { waitMs: 0 })
  async pay(id: string): Promise<string> {
    this.runs += 1;
    await this.work();
    return `${id} in run ${this.runs}`;
  }
}

class Reports {
  end?: () => void;

  @Idempotent('report:<day>')
  async report(day: string): Promise<string> {
    await new Promise<void>((resolve) => (this.end = resolve));
    return day;
  }
}

/** Those that keep the process alive. */
function timers(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
}

describe('LockTesting.install() and @Idempotent', () => {
  let payouts: Payouts;

  beforeEach(() => {
    LockTesting.install();
    payouts = new Payouts();
  });
  afterEach(() => LockTesting.uninstall());

  it('gives an object made with "new" the answer of its first call', async () => {
    await expect(payouts.pay('1')).resolves.toBe('1 in run 1');
    await expect(payouts.pay('1')).resolves.toBe('1 in run 1');
    await expect(new Payouts().pay('2')).resolves.toBe('2 in run 1');
    expect(payouts.runs).toBe(1);
  });

  it('frees the record while the lock is held elsewhere', async () => {
    const release = await LockTesting.holdElsewhere('invoice:1');
    await expect(payouts.pay('1')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await release();
    await expect(payouts.pay('1')).resolves.toBe('1 in run 1');
  });

  it('forgets answers with reset(), and with the next install()', async () => {
    await payouts.pay('1');
    await LockTesting.reset();
    await expect(payouts.pay('1')).resolves.toBe('1 in run 2');
    LockTesting.install();
    await expect(payouts.pay('1')).resolves.toBe('1 in run 3');
  });

  it('takes the store of records away as well, and the method does not run', async () => {
    await LockTesting.unavailable(async () => {
      await expect(payouts.pay('1')).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    });
    expect(payouts.runs).toBe(0);
    await expect(payouts.pay('1')).resolves.toBe('1 in run 1');
  });

  it('names idempotent calls that are under way, and is idle when they have ended', async () => {
    const plain = new Reports();
    LockTesting.expectIdle();
    const reporting = plain.report('monday');
    while (!plain.end) await new Promise(setImmediate);
    expect(() => LockTesting.expectIdle()).toThrow('Idempotent calls are still running: "report:monday".');
    plain.end();
    await reporting;
    LockTesting.expectIdle();
  });

  it('ends with uninstall(): what runs then is not waited for, and leaves no timer', async () => {
    const before = timers();
    let end!: () => void;
    payouts.work = () => new Promise((resolve) => (end = resolve));
    const told = expect(payouts.pay('1')).rejects.toMatchObject({
      code: 'IDEMPOTENCY_LEASE_LOST',
    });
    while (!end as boolean) await new Promise(setImmediate);
    await LockTesting.uninstall();
    end();
    await told;
    expect(timers()).toBeLessThanOrEqual(before);
    await expect(payouts.pay('2')).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
  });

  it('works with a store and options of your own', async () => {
    const told: string[] = [];
    const store = memoryIdempotencyStore();
    const idempotency: IdempotencyModuleOptions = { store, onEvent: ({ type }) => void told.push(type) };
    LockTesting.install({ idempotency });
    await payouts.pay('1');
    expect(told).toEqual(['claimed', 'completed']);
  });
});

describe('LockTesting.module() and @Idempotent', () => {
  it('serves an application, and each boot begins with records of its own', async () => {
    const boot = () =>
      Test.createTestingModule({ imports: [LockTesting.module()], providers: [Payouts] }).compile();
    const first = await boot();
    await first.get(Payouts).pay('1');
    await expect(first.get(Payouts).pay('1')).resolves.toBe('1 in run 1');
    expect(first.get(Payouts).runs).toBe(1);
    expect(first.get(IdempotencyService).storeKind).toBe('memory');
    const second = await boot();
    await second.get(Payouts).pay('1');
    expect(second.get(Payouts).runs).toBe(1);
    LockTesting.expectIdle();
    await LockTesting.reset();
    await second.get(Payouts).pay('1');
    expect(second.get(Payouts).runs).toBe(2);
    await Promise.all([first.close(), second.close()]);
  });
});
