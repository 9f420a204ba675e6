import { setTimeout as sleep } from 'node:timers/promises';

import {
  currentLease,
  LockService,
  systemClock,
  type Clock,
  type Lease,
  type LockEvent,
  type Timer,
} from '../core/index.js';
import { memoryStore } from '../stores/memory/index.js';
import { CurrentLease } from './current-lease.decorator.js';
import { Locked } from './locked.decorator.js';
import type { BusyLock } from './locked-options.js';
import { serveStandalone } from './locks-of-object.js';

function mark(): MethodDecorator {
  return (_target, _name, descriptor) => Reflect.defineMetadata('mark', 'below', descriptor.value as object);
}

class Billing {
  readonly ran: string[] = [];

  @Locked('invoice:<id>')
  @mark()
  async settle(id: string, pause = 0): Promise<string> {
    this.ran.push(id);
    await sleep(pause);
    return `${id} under ${currentLease()?.key}`;
  }

  @Locked('invoice:<0>', { waitMs: 0 })
  async settleNow(_id: string): Promise<number | undefined> {
    return Promise.resolve(currentLease()?.token);
  }

  @Locked('invoice:<id>', { onBusy: 'skip' })
  async settleUnlessBusy(id: string): Promise<string | undefined> {
    return Promise.resolve(id);
  }

  @Locked('invoice:<id>', { waitMs: 0, onBusy: (busy, id: string) => `${busy.key} of ${id} is busy` })
  async settleOrSay(id: string): Promise<string> {
    return this.settle(id);
  }

  @Locked('invoice:<id>', {
    waitMs: 0,
    onBusy: (busy: BusyLock) => {
      throw new RangeError(`again in ${busy.retryAfterMs}`);
    },
  })
  async settleOrThrow(id: string): Promise<string> {
    return this.settle(id);
  }

  @Locked('batch:<id>', { onBusy: 'skip' })
  async batch(id: string): Promise<number | undefined> {
    return this.settleNow(id);
  }

  @Locked('invoice:<id>')
  async withLease(id: string, @CurrentLease() lease?: Lease): Promise<string> {
    return Promise.resolve(`${id}: ${lease?.key}`);
  }

  @Locked((id: string) => `invoice:${id}`)
  async fail(_id: string): Promise<void> {
    throw new TypeError('no such invoice');
  }
}

let locks: LockService;
let events: LockEvent[];

beforeEach(() => {
  locks = new LockService({ stores: { default: memoryStore() } });
  events = [];
  locks.events.subscribe((event) => events.push(event));
  serveStandalone(locks);
});

afterEach(async () => {
  serveStandalone(undefined);
  await locks.close(0);
});

describe('@Locked', () => {
  it('runs the method under the lock that its arguments name, with its this and its result', async () => {
    const billing = new Billing();
    await expect(billing.settle('42')).resolves.toBe('42 under invoice:42');
    expect(billing.ran).toEqual(['42']);
    expect(locks.busy).toBe(false);
  });

  it('C115: locks another key for each call, however many run at once', async () => {
    const billing = new Billing();
    const results = await Promise.all(['1', '2', '3', '1'].map((id) => billing.settle(id, 5)));
    expect(results).toEqual([
      '1 under invoice:1',
      '2 under invoice:2',
      '3 under invoice:3',
      '1 under invoice:1',
    ]);
    expect(billing.ran).toEqual(['1', '2', '3', '1']);
  });

  it('C115: rejects, and does not run the method, when a part of the key is missing', async () => {
    const billing = new Billing();
    const call = billing.settle('');
    expect(call).toBeInstanceOf(Promise);
    await expect(call).rejects.toMatchObject({ code: 'LOCK_KEY_INVALID', outcome: 'not-started' });
    await expect(billing.settle(undefined as never)).rejects.toMatchObject({ code: 'LOCK_KEY_INVALID' });
    expect(billing.ran).toEqual([]);
  });

  it('C038: two methods with one key exclude each other, whatever their classes and names', async () => {
    class Cancellation {
      @Locked('invoice:<nr>', { waitMs: 0 })
      async cancel(nr: string): Promise<string> {
        return Promise.resolve(nr);
      }
    }
    const settling = new Billing().settle('42', 20);
    await expect(new Cancellation().cancel('42')).rejects.toMatchObject({
      code: 'LOCK_TIMEOUT',
      key: 'invoice:42',
    });
    await settling;
    await expect(new Cancellation().cancel('42')).resolves.toBe('42');
  });

  it('passes the error of the method on, and gives the lock back', async () => {
    const billing = new Billing();
    await expect(billing.fail('42')).rejects.toThrow(new TypeError('no such invoice'));
    expect(locks.busy).toBe(false);
  });

  it('keeps the name, the length, the properties and the metadata of the method', () => {
    const { settle } = Billing.prototype;
    expect(settle.name).toBe('settle');
    expect(settle).toHaveLength(1);
    expect(Reflect.getMetadata('mark', settle)).toBe('below');
    expect(Reflect.getMetadata('design:returntype', Billing.prototype, 'settle')).toBe(Promise);
  });

  it('leaves no trace on the instance that printing, comparing or copying would show', async () => {
    const billing = new Billing();
    await billing.settle('1');
    expect(Reflect.ownKeys(billing)).toEqual(['ran']);
  });
});

describe('@Locked on a busy key', () => {
  let release: () => Promise<unknown>;

  beforeEach(async () => {
    const lease = await locks.acquire('invoice:42');
    release = () => lease.release();
  });

  it("skips without waiting, resolves with undefined, and tells by an event, with onBusy: 'skip'", async () => {
    await expect(new Billing().settleUnlessBusy('42')).resolves.toBeUndefined();
    const skipped = events.filter(({ type }) => type === 'skipped');
    expect(skipped).toEqual([
      {
        type: 'skipped',
        key: 'invoice:42',
        template: 'invoice:<id>',
        store: 'default',
        retryAfterMs: expect.any(Number),
      },
    ]);
    await release();
    await expect(new Billing().settleUnlessBusy('42')).resolves.toBe('42');
  });

  it("needs no time to pass to skip, with onBusy: 'skip'", async () => {
    const never: Timer = { cancel: () => undefined };
    const schedule: Clock['schedule'] = (delayMs, run) =>
      delayMs > 0 ? never : systemClock.schedule(delayMs, run);
    const others = new LockService({
      stores: { default: memoryStore() },
      clock: { ...systemClock, schedule },
    });
    serveStandalone(others);
    try {
      await others.acquire('invoice:42');
      await expect(new Billing().settleUnlessBusy('42')).resolves.toBeUndefined();
    } finally {
      serveStandalone(locks);
      await others.close(0);
    }
  });

  it('resolves with what onBusy returns, and rejects with what it throws', async () => {
    await expect(new Billing().settleOrSay('42')).resolves.toBe('invoice:42 of 42 is busy');
    await expect(new Billing().settleOrThrow('42')).rejects.toThrow(RangeError);
    await release();
    await expect(new Billing().settleOrSay('42')).resolves.toBe('42 under invoice:42');
  });

  it('does not take a busy key inside the body for its own', async () => {
    await expect(new Billing().batch('42')).rejects.toMatchObject({
      code: 'LOCK_TIMEOUT',
      key: 'invoice:42',
    });
    expect(events.filter(({ type }) => type === 'skipped')).toEqual([]);
  });
});

describe('@Locked and @CurrentLease', () => {
  it('fills the parameter with the lease, whatever was passed', async () => {
    await expect(new Billing().withLease('1')).resolves.toBe('1: invoice:1');
    await expect(new Billing().withLease('1', { key: 'forged' } as Lease)).resolves.toBe('1: invoice:1');
  });

  it('refuses to stand on a constructor', () => {
    const declare = (): unknown => {
      class Wrong {
        constructor(@CurrentLease() readonly lease: Lease) {}
      }
      return Wrong;
    };
    expect(declare).toThrow(/while an object is constructed/);
  });
});
