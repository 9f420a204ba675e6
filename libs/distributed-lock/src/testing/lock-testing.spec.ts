import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';

import { currentLease, lockKey, LockService } from '../core/index.js';
import { Locked } from '../nest/index.js';
import { LockTesting } from './lock-testing.js';
import { ManualClock } from './manual-clock.js';

const InvoiceKey = lockKey('invoice:<id>');

@Injectable()
class Billing {
  pause: () => Promise<void> = () => Promise.resolve();

  @Locked(InvoiceKey, { waitMs: 0 })
  async settle(id: string): Promise<string> {
    await this.pause();
    return `${id} under ${currentLease()?.token}`;
  }

  @Locked('report:<0>', { store: 'reports', waitMs: 0 })
  async report(_id: string): Promise<string | undefined> {
    return Promise.resolve(currentLease()?.store);
  }
}

describe('LockTesting.install()', () => {
  beforeEach(() => void LockTesting.install({ stores: ['reports'] }));
  afterEach(() => LockTesting.uninstall());

  it('lets an object made with "new" lock in memory, in every named store', async () => {
    const settled = await new Billing().settle('1');
    expect(settled).toBe(`1 under ${LockTesting.tokenOf('invoice:1')}`);
    await expect(new Billing().report('1')).resolves.toBe('reports');
    expect(LockTesting.tokenOf('report:1', { store: 'reports' })).toBeGreaterThan(0);
    expect(() => LockTesting.tokenOf('report:1')).toThrow(/"report:1" has not been locked/);
  });

  it('ends with uninstall(), which may be called twice', async () => {
    await LockTesting.uninstall();
    await LockTesting.uninstall();
    await expect(new Billing().settle('1')).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
  });

  it('holds a key elsewhere until told to stop, with growing tokens', async () => {
    const release = await LockTesting.holdElsewhere(InvoiceKey({ id: '1' }));
    const elsewhere = LockTesting.tokenOf('invoice:1');
    await expect(new Billing().settle('1')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await expect(LockTesting.holdElsewhere('invoice:1')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await release();
    await new Billing().settle('1');
    expect(LockTesting.tokenOf('invoice:1')).toBeGreaterThan(elsewhere);
  });

  it.each(['taken-over', 'expired', 'session-ended', 'clock-jump', 'max-hold'] as const)(
    'loses a lease for the reason %s, and gives the key to others',
    async (reason) => {
      const billing = new Billing();
      billing.pause = async () => {
        await LockTesting.lose('invoice:1', reason);
        await (
          await LockTesting.holdElsewhere('invoice:1')
        )();
      };
      await expect(billing.settle('1')).rejects.toMatchObject({ code: 'LEASE_LOST', reason });
    },
  );

  it('says what is held when it shall lose what is not', async () => {
    await expect(LockTesting.lose('invoice:1')).rejects.toThrow(/"invoice:1" is not held.*Held: nothing/);
  });

  it('C121: takes the store away for a while, and the method does not run', async () => {
    const billing = new Billing();
    const ran = jest.spyOn(billing, 'pause');
    await LockTesting.unavailable(async () => {
      await expect(billing.settle('1')).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    });
    expect(ran).not.toHaveBeenCalled();
    await expect(billing.settle('1')).resolves.toMatch(/^1 under/);
  });

  it('names what is still held, and frees it with reset()', async () => {
    const billing = new Billing();
    let finish!: () => void;
    billing.pause = () => new Promise((resolve) => (finish = resolve));
    const settling = billing.settle('1');
    const told = expect(settling).rejects.toMatchObject({ code: 'LEASE_LOST' });
    while (!finish as boolean) await new Promise(setImmediate);
    expect(() => LockTesting.expectIdle()).toThrow(/still held\. Held: "invoice:1" \(for \d+ ms\)/);
    await LockTesting.holdElsewhere('invoice:2');
    await LockTesting.reset();
    LockTesting.expectIdle();
    finish();
    await told;
    await expect(billing.report('2')).resolves.toBe('reports');
    await (
      await LockTesting.holdElsewhere('invoice:2')
    )();
  });
});

describe('LockTesting.module()', () => {
  const locking = LockTesting.module({ stores: ['reports'], namespace: 'test' });

  it('serves an application, and each boot begins with stores of its own', async () => {
    const boot = () => Test.createTestingModule({ imports: [locking], providers: [Billing] }).compile();
    const first = await boot();
    await LockTesting.holdElsewhere('invoice:1');
    await expect(first.get(Billing).settle('1')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    const second = await boot();
    await expect(second.get(Billing).settle('1')).resolves.toMatch(/^1 under/);
    expect(first.get(LockService)).not.toBe(second.get(LockService));
    await Promise.all([first.close(), second.close()]);
  });
});

describe('LockTesting before anything was begun', () => {
  it('says what to call', async () => {
    await jest.isolateModulesAsync(async () => {
      const fresh = await import('./lock-testing.js');
      expect(() => fresh.LockTesting.expectIdle()).toThrow(/Call LockTesting\.install\(\)/);
      await fresh.LockTesting.reset();
    });
  });
});

describe('time in tests', () => {
  afterEach(() => LockTesting.uninstall());

  it('C084: is the clock that was given: waiting, renewal and expiry follow it', async () => {
    const clock = new ManualClock();
    const locks = LockTesting.install({ clock });
    const lease = await locks.acquire('a', { ttlMs: 3_000 });
    await clock.advance(60_000);
    lease.assertHeld();
    clock.block(3_001);
    expect(() => lease.assertHeld()).toThrow(
      expect.objectContaining({ code: 'LEASE_LOST', reason: 'expired' }),
    );
    await locks.close(0);
    expect(clock.armed).toBe(0);
  });

  it.each([['modern'], ['legacy']] as const)(
    'C061: may be faked by the test runner (%s timers)',
    async (kind) => {
      jest.useFakeTimers(kind === 'legacy' ? { legacyFakeTimers: true } : {});
      try {
        const locks = LockTesting.install();
        const billing = new Billing();
        await expect(billing.settle('1')).resolves.toMatch(/^1 under/);
        const lease = await locks.acquire('invoice:1');
        const waiting = locks.withLock('invoice:1', { waitMs: 60_000 }, () => 'in');
        await lease.release();
        await expect(waiting).resolves.toBe('in');
        if (kind === 'modern') {
          const held = await locks.acquire('invoice:1', { ttlMs: 3_000 });
          await jest.advanceTimersByTimeAsync(60_000);
          held.assertHeld();
          const late = locks.withLock('invoice:1', { waitMs: 1_000 }, () => 'in');
          const refused = expect(late).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
          await jest.advanceTimersByTimeAsync(1_500);
          await refused;
          await held.release();
        }
        expect(locks.busy).toBe(false);
        expect(jest.getTimerCount()).toBe(0);
      } finally {
        jest.useRealTimers();
      }
    },
  );
});
