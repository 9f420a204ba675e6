import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  currentAttempt,
  DistributedLockModule,
  Idempotent,
  IdempotencyService,
  Locked,
  LockEvents,
  LockService,
  memoryIdempotencyStore,
  memoryStore,
  type ApplicationEvent,
  type IdempotencyEvent,
  type IdempotencyStore,
  type IdempotentCallEvent,
  type LockEvent,
} from 'nestjs-distributed-lock';
import { ManualClock } from 'nestjs-distributed-lock/testing';

const LEASE_MS = 60_000;

class Money {
  readonly amount = 1;
}

@Injectable()
class Billing {
  body: (id: string, amount: number) => unknown = () => 'done';

  @Locked('invoice:<id>')
  @Idempotent('payout:<id>', { leaseMs: LEASE_MS, onCrash: 'reject', waitMs: 0 })
  async pay(id: string, amount = 1): Promise<unknown> {
    return Promise.resolve(this.body(id, amount));
  }
}

let app: TestingModule;
/** No lease ends, and none is renewed, before a test says so. */
let clock: ManualClock;
let store: IdempotencyStore;
let billing: Billing;
let told: IdempotencyEvent[];
let seen: ApplicationEvent[];

beforeEach(async () => {
  clock = new ManualClock();
  store = memoryIdempotencyStore({ clock });
  [told, seen] = [[], []];
  const idempotency = { store, onEvent: (event: IdempotencyEvent) => void told.push(event) };
  const imports = [DistributedLockModule.forRoot({ store: memoryStore({ clock }), idempotency, clock })];
  app = await Test.createTestingModule({ imports, providers: [Billing] }).compile();
  await app.init();
  billing = app.get(Billing);
  app.get(LockEvents).subscribe((event) => seen.push(event));
});

afterEach(() => app.close());

const isOfCall = ({ type }: ApplicationEvent): boolean => type.startsWith('idempotency-');
const types = (): string[] => seen.map(({ type }) => type).filter((type) => type !== 'renewed');
const typesOfCalls = (): string[] => seen.filter(isOfCall).map(({ type }) => type);
const codeOf = ({ code }: { readonly code: string }): string => code;

describe('the stream of events', () => {
  it('tells of idempotent calls between what it tells of their locks', async () => {
    await billing.pay('1');
    await billing.pay('1');
    await billing.pay('1', 2).catch(codeOf);
    expect(types()).toEqual([
      'idempotency-claimed',
      'acquired',
      'released',
      'idempotency-completed',
      'idempotency-replayed',
      'idempotency-key-reused',
    ]);
  });

  it('labels them as locks are labelled: with a template and the kind of store, and with no value', async () => {
    await billing.pay('4711');
    await billing.pay('4711');
    const [claimed, , , completed, replayed] = seen;
    const subject = { key: 'payout:4711', template: 'payout:<id>', store: 'memory' };
    expect(claimed).toEqual({
      ...subject,
      type: 'idempotency-claimed',
      attempt: 1,
      fence: expect.any(Number),
      takenOver: false,
    });
    expect(completed).toMatchObject({ ...subject, type: 'idempotency-completed', attempt: 1 });
    expect(replayed).toEqual({ ...subject, type: 'idempotency-replayed', waitedMs: expect.any(Number) });
  });

  it.each<[string, () => Promise<unknown>, string[]]>([
    [
      'a call at work elsewhere',
      async () => {
        let end!: (value: unknown) => void;
        billing.body = () => new Promise((resolve) => (end = resolve));
        const first = billing.pay('1');
        while (!end as boolean) await new Promise(setImmediate);
        await billing.pay('1').catch(codeOf);
        end(1);
        return first;
      },
      ['idempotency-claimed', 'idempotency-in-progress', 'idempotency-completed'],
    ],
    [
      'a failure',
      () => {
        billing.body = () => Promise.reject(new Error('broken'));
        return billing.pay('1');
      },
      ['idempotency-claimed', 'idempotency-failed'],
    ],
    [
      'a lost record',
      async () => {
        jest.spyOn(store, 'renew').mockResolvedValue('lost');
        billing.body = async () => {
          const { signal } = currentAttempt() ?? {};
          await clock.advance(LEASE_MS / 3); // a renewal
          expect(signal?.aborted).toBe(true);
          await app.get(IdempotencyService).forget('payout:1');
        };
        await billing.pay('1');
      },
      ['idempotency-claimed', 'idempotency-lease-lost', 'idempotency-completed'],
    ],
    [
      'a store that does not answer',
      () => {
        jest.spyOn(store, 'claim').mockRejectedValue(new Error('gone'));
        return billing.pay('1');
      },
      ['idempotency-store-unanswered'],
    ],
    [
      'a result that cannot be kept',
      () => {
        billing.body = () => () => 1;
        return billing.pay('1');
      },
      ['idempotency-claimed', 'idempotency-result-omitted', 'idempotency-completed'],
    ],
    [
      'an instance of a class that nobody registered',
      () => {
        billing.body = () => new Money();
        return billing.pay('1');
      },
      ['idempotency-claimed', 'idempotency-class-not-registered', 'idempotency-completed'],
    ],
    [
      'an outcome that nobody knows',
      async () => {
        jest.spyOn(store, 'settle').mockResolvedValueOnce('settled');
        billing.body = () => Promise.reject(new Error('crashed'));
        await billing.pay('1').catch(codeOf);
        clock.block(LEASE_MS);
        return billing.pay('1');
      },
      ['idempotency-claimed', 'idempotency-failed', 'idempotency-outcome-unknown'],
    ],
  ])('tells of %s', async (_, happen, expected) => {
    await happen().catch(() => undefined);
    expect(typesOfCalls()).toEqual(expected);
    expect(told.map(({ type }) => `idempotency-${type}`)).toEqual(expected);
    expect(told.every(({ label }) => label === 'payout:<id>')).toBe(true);
    jest.restoreAllMocks();
  });

  it('tells of a purge, under a label of its own', async () => {
    await app.get(IdempotencyService).purge(app.get(LockService));
    expect(seen.filter(isOfCall)).toEqual([
      {
        type: 'idempotency-purged',
        records: 0,
        key: 'idempotency-purge',
        template: 'idempotency-purge',
        store: 'memory',
      },
    ]);
  });

  it('has types of its own for them, which TypeScript tells apart', () => {
    const shared: readonly Extract<LockEvent['type'], IdempotentCallEvent['type']>[] = [] as never[];
    const attemptOf = (event: ApplicationEvent): number | undefined =>
      event.type === 'idempotency-completed' ? event.attempt : undefined;
    expect([shared, attemptOf.length]).toEqual([[], 1]);
  });

  it('goes on when a subscriber throws, and so do the calls', async () => {
    const logged = jest.spyOn(console, 'error').mockImplementation(() => undefined);
    app.useLogger(false);
    app.get(LockEvents).subscribe(() => {
      throw new Error('a broken subscriber');
    });
    await expect(billing.pay('1')).resolves.toBe('done');
    await expect(billing.pay('1')).resolves.toBe('done');
    expect(typesOfCalls()).toHaveLength(3);
    logged.mockRestore();
  });

  it('ends with the application, and what comes later is told to nobody', async () => {
    const ended = jest.fn();
    app.get(LockEvents).subscribe({ complete: ended });
    await app.close();
    await expect(billing.pay('1')).rejects.toMatchObject({ code: 'SHUTTING_DOWN' });
    expect(ended).toHaveBeenCalledTimes(1);
    expect(seen).toEqual([]);
  });
});
