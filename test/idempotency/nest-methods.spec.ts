import { Injectable, type INestApplicationContext } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  DistributedLockModule,
  Idempotent,
  IdempotencyService,
  Locked,
  LockContext,
  memoryStore,
  type IdempotentOptions,
} from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';

interface Payout {
  readonly id: string;
  readonly run: number;
  readonly at: Date;
  readonly key: string;
  readonly further: string;
  readonly attempt: number;
  readonly locked: string | undefined;
}

/** Between two of our decorators, as `@Transactional` may be. */
function Between(): MethodDecorator {
  return (_target, _name, descriptor) => {
    const method = descriptor.value as unknown as (...args: unknown[]) => Promise<unknown>;
    (descriptor as PropertyDescriptor).value = async function (...args: unknown[]): Promise<unknown> {
      return method.apply(this, args);
    };
  };
}

@Injectable()
class Payouts {
  runs = 0;
  failures = 0;
  gate: Promise<void> = Promise.resolve();
  constructor(private readonly context: LockContext) {}

  async #pay(id: string): Promise<Payout> {
    this.runs += 1;
    const { idempotencyKey: key, attempt } = this.context;
    const further = this.context.idempotencyKeyFor('mail');
    await this.gate;
    if (this.failures-- > 0) throw new Error('the gateway is away');
    return {
      id,
      run: this.runs,
      at: new Date(0),
      key,
      further,
      attempt,
      locked: this.context.lease(`invoice:${id}`)?.key,
    };
  }

  @Idempotent('payout:<id>')
  async plain(id: string, _amount = 0): Promise<Payout> {
    return this.#pay(id);
  }

  @Locked('invoice:<id>', { waitMs: 0 })
  @Idempotent('payout:<id>')
  async lockedAbove(id: string): Promise<Payout> {
    return this.#pay(id);
  }

  @Idempotent('payout:<id>')
  @Locked('invoice:<id>', { waitMs: 0 })
  async lockedBelow(id: string): Promise<Payout> {
    return this.#pay(id);
  }

  @Locked('invoice:<id>', { waitMs: 0 })
  @Between()
  @Idempotent('payout:<id>')
  async lockedFarAbove(id: string): Promise<Payout> {
    return this.#pay(id);
  }

  @Locked('customer:<id>', { waitMs: 0 })
  @Idempotent('payout:<id>')
  @Between()
  @Locked('invoice:<id>', { waitMs: 0 })
  async lockedTwice(id: string): Promise<Payout> {
    return this.#pay(id);
  }

  @Locked('invoice:<id>', { onBusy: 'skip' })
  @Idempotent('payout:<id>')
  async skippedAbove(id: string): Promise<Payout | undefined> {
    return this.#pay(id);
  }

  @Idempotent('payout:<id>')
  @Locked('invoice:<id>', { onBusy: 'skip' })
  async skippedBelow(id: string): Promise<Payout | undefined> {
    return this.#pay(id);
  }

  @Locked('invoice:<id>')
  @Idempotent('payout:<id>', { onCrash: 'reject' })
  async losing(id: string): Promise<Payout> {
    const paid = await this.#pay(id);
    await LockTesting.lose(`invoice:${id}`);
    return paid;
  }

  @Idempotent('tree:<id>')
  @Locked('tree:<id>')
  async tree(id: string, depth: number): Promise<number> {
    this.runs += 1;
    return depth === 0 ? 0 : 1 + (await this.tree(`${id}.${depth}`, depth - 1));
  }

  @Idempotent()
  async byArguments(order: { customer: string; lines: number[] }, _note?: string): Promise<number> {
    this.runs += 1;
    return Promise.resolve(order.lines.length);
  }

  @Idempotent({ fingerprint: (job: { data: string }) => job.data })
  async ofJob(job: { data: string; done: () => void }): Promise<string> {
    this.runs += 1;
    return Promise.resolve(job.data);
  }

  @Idempotent('export:<id>', { scope: (_id: string, user: string) => user, fingerprint: false })
  async perUser(id: string, user: string): Promise<string> {
    this.runs += 1;
    return Promise.resolve(`${id} for ${user}`);
  }

  @Idempotent()
  async unreadable(job: { done: () => void }): Promise<void> {
    await Promise.resolve(job.done());
  }
}

let app: INestApplicationContext;
let payouts: Payouts;

beforeEach(async () => {
  const locks = LockTesting.module();
  const module = await Test.createTestingModule({ imports: [locks], providers: [Payouts] }).compile();
  app = await module.init();
  payouts = app.get(Payouts);
});

afterEach(async () => {
  await LockTesting.reset();
  await app.close();
});

const ORDERS = ['lockedAbove', 'lockedBelow', 'lockedFarAbove', 'lockedTwice'] as const;

describe('a method with @Idempotent', () => {
  it('runs once, and every further call gets the same answer, with its types', async () => {
    const first = await payouts.plain('42');
    await expect(payouts.plain('42')).resolves.toEqual(first);
    expect(first).toMatchObject({ run: 1, at: new Date(0), key: 'payout:42', attempt: 1 });
    expect(first.further).not.toBe(first.key);
    await expect(payouts.plain('43')).resolves.toMatchObject({ run: 2, key: 'payout:43' });
  });

  it('runs once for parallel calls, which wait for it', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, () => payouts.plain('42')));
    expect(answers.every(({ run }) => run === 1)).toBe(true);
    expect(payouts.runs).toBe(1);
  });

  it('refuses other arguments under a known key', async () => {
    await payouts.plain('42', 10);
    await expect(payouts.plain('42', 11)).rejects.toMatchObject({ code: 'IDEMPOTENCY_KEY_REUSED' });
    expect(payouts.runs).toBe(1);
  });

  it('runs again after a failure, as the next attempt under the same key for others', async () => {
    payouts.failures = 1;
    await expect(payouts.plain('42')).rejects.toThrow('the gateway is away');
    await expect(payouts.plain('42')).resolves.toMatchObject({ attempt: 2, key: 'payout:42' });
  });

  it('takes calls as the same when their arguments are, without a key', async () => {
    await payouts.byArguments({ customer: 'a', lines: [1, 2] });
    await payouts.byArguments({ lines: [1, 2], customer: 'a' }, undefined);
    expect(payouts.runs).toBe(1);
    await payouts.byArguments({ customer: 'a', lines: [2, 1] });
    expect(payouts.runs).toBe(2);
  });

  it('takes what is no plain data only with a function that says what identifies the call', async () => {
    await expect(payouts.unreadable({ done: () => undefined })).rejects.toMatchObject({
      code: 'IDEMPOTENCY_KEY_INVALID',
      message: expect.stringContaining('fingerprint: (job) => job.data'),
    });
    await payouts.ofJob({ data: 'x', done: () => undefined });
    await payouts.ofJob({ data: 'x', done: () => undefined });
    expect(payouts.runs).toBe(1);
  });

  it('never gives one caller the answer of another when scope says who they are', async () => {
    await expect(payouts.perUser('1', 'a')).resolves.toBe('1 for a');
    await expect(payouts.perUser('1', 'b')).resolves.toBe('1 for b');
  });

  it('can be settled by an operator', async () => {
    await payouts.plain('42');
    await app.get(IdempotencyService).forget('payout:42');
    await expect(payouts.plain('42')).resolves.toMatchObject({ run: 2 });
  });
});

describe.each(ORDERS)('with @Locked, in the order %s', (method) => {
  it('runs once, under the lock', async () => {
    const first = await payouts[method]('42');
    expect(first.locked).toBe('invoice:42');
    await expect(payouts[method]('42')).resolves.toEqual(first);
    expect(payouts.runs).toBe(1);
    LockTesting.expectIdle();
  });

  it('gives the stored answer while the lock is busy: the record comes first', async () => {
    const first = await payouts[method]('42');
    const release = await LockTesting.holdElsewhere('invoice:42');
    await expect(payouts[method]('42')).resolves.toEqual(first);
    await release();
  });

  it('counts no attempt for a busy lock, and frees the record', async () => {
    const release = await LockTesting.holdElsewhere('invoice:42');
    await expect(payouts[method]('42')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await release();
    await expect(payouts[method]('42')).resolves.toMatchObject({ attempt: 1, run: 1 });
  });

  it('counts a failed attempt', async () => {
    payouts.failures = 1;
    await expect(payouts[method]('42')).rejects.toThrow('the gateway is away');
    await expect(payouts[method]('42')).resolves.toMatchObject({ attempt: 2 });
  });
});

describe('with @Locked', () => {
  it.each(['skippedAbove', 'skippedBelow'] as const)(
    'never completes what %s has skipped',
    async (method) => {
      const release = await LockTesting.holdElsewhere('invoice:42');
      await expect(payouts[method]('42')).resolves.toBeUndefined();
      await release();
      await expect(payouts[method]('42')).resolves.toMatchObject({ run: 1, attempt: 1 });
    },
  );

  it('leaves the record lapsed when the lock was lost, so that onCrash decides', async () => {
    await expect(payouts.losing('42')).rejects.toMatchObject({ code: 'LEASE_LOST' });
    await expect(payouts.losing('42')).rejects.toMatchObject({ code: 'IDEMPOTENCY_OUTCOME_UNKNOWN' });
    expect(payouts.runs).toBe(1);
  });

  it('takes a nested call of the same method as a call of its own', async () => {
    await expect(payouts.tree('a', 3)).resolves.toBe(3);
    expect(payouts.runs).toBe(4);
    await expect(payouts.tree('a', 3)).resolves.toBe(3);
    await expect(payouts.tree('a.3', 2)).resolves.toBe(2);
    expect(payouts.runs).toBe(4);
  });
});

describe('LockContext', () => {
  it('has no idempotency key and no attempt outside, and says where to read them', () => {
    const context = app.get(LockContext);
    for (const read of [
      () => context.idempotencyKey,
      () => context.attempt,
      () => context.idempotencyKeyFor('x'),
    ])
      expect(read).toThrow(/@Idempotent/);
  });
});

async function bootWith(provider: new () => object, idempotency = true): Promise<void> {
  const locks = idempotency ? LockTesting.module() : DistributedLockModule.forRoot({ store: memoryStore() });
  const module = Test.createTestingModule({ imports: [locks], providers: [provider] });
  app = await (await module.compile()).init();
}

function providerWith(options: IdempotentOptions): new () => object {
  @Injectable()
  class Provider {
    @Idempotent('x:<id>', options)
    async run(id: string): Promise<string> {
      return Promise.resolve(id);
    }
  }
  return Provider;
}

describe('at boot', () => {
  it('says what to write when there is no place for records', async () => {
    await expect(bootWith(providerWith({}), false)).rejects.toThrow(
      /Provider\.run .*idempotency: \{ store: memoryIdempotencyStore\(\) \}/,
    );
  });

  it('refuses options that cannot work', async () => {
    await expect(bootWith(providerWith({ leaseMs: 0 }))).rejects.toThrow(
      /@Idempotent on Provider\.run: leaseMs/,
    );
  });

  it('refuses a key that names no parameter, and a stream, when the class is loaded', () => {
    expect(() => {
      class Wrong {
        @Idempotent('x:<nr>')
        async run(id: string): Promise<string> {
          return Promise.resolve(id);
        }
      }
      return Wrong;
    }).toThrow(/@Idempotent on Wrong\.run: "x:<nr>"/);
    expect(() => {
      class Streaming {
        // @ts-expect-error -- the compiler refuses it as well
        @Idempotent('x:<id>')
        async *run(id: string): AsyncGenerator<string> {
          yield Promise.resolve(id);
        }
      }
      return Streaming;
    }).toThrow(/Streaming\.run: it returns a stream/);
  });
});
