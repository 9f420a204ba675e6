import { Body, Controller, Param, Post, Query } from '@nestjs/common';
import { Idempotent, Locked, memoryIdempotencyStore, type IdempotencyStore } from 'nestjs-distributed-lock';
import { LockTesting, ManualClock } from 'nestjs-distributed-lock/testing';

import {
  Calls,
  describeOnEachAdapter,
  expectReplay,
  problemOf,
  type Answer,
  type HttpApp,
} from './nest-http-adapters.js';

@Controller('invoices')
class Invoices {
  constructor(private readonly calls: Calls) {}

  @Post(':id/pay')
  @Idempotent()
  async pay(@Param('id') id: string, @Body() _body: unknown, @Query() _query: unknown): Promise<object> {
    return this.calls.run((run) => ({ id, run }));
  }

  @Post(':id/pay-soon')
  @Idempotent({ leaseMs: 900 })
  async paySoon(@Param('id') id: string): Promise<object> {
    return this.calls.run((run) => ({ id, run }));
  }

  @Post(':id/wait')
  @Idempotent({ waitMs: 60_000 })
  async wait(@Param('id') id: string): Promise<object> {
    return this.calls.run((run) => ({ id, run }));
  }

  @Post(':id/lose')
  @Locked('invoice:<id>')
  @Idempotent({ onCrash: 'reject' })
  async lose(@Param('id') id: string): Promise<void> {
    await this.calls.run(undefined);
    await LockTesting.lose(`invoice:${id}`);
  }
}

/** Answers until it is told to go away. */
class MovingStore {
  isAway = false;
  readonly store: IdempotencyStore;

  constructor() {
    const store = memoryIdempotencyStore();
    this.store = new Proxy(store, {
      get: (_store, name) => {
        const part: unknown = Reflect.get(store, name);
        if (typeof part !== 'function' || name === 'close') return part;
        return this.isAway
          ? () => Promise.reject(new Error('connect ECONNREFUSED'))
          : (part as () => unknown).bind(store);
      },
    });
  }
}

const places: MovingStore[] = [];
const parts = {
  controllers: [Invoices],
  idempotency: {
    store: () => {
      places.push(new MovingStore());
      return (places.at(-1) as MovingStore).store;
    },
  },
};

/** However slow the machine is, what is left of a lease is what it was at first. */
const clock = new ManualClock();
const timeless = {
  controllers: [Invoices],
  clock,
  idempotency: { store: () => memoryIdempotencyStore({ clock }) },
};

const key = 'client-key-1';

async function whileRunning(app: HttpApp, path: string, work: () => Promise<void>): Promise<Answer> {
  const open = app.calls.close();
  const first = app.send(path, { key });
  try {
    await app.calls.arrival();
    await work();
  } finally {
    open();
  }
  return first;
}

describeOnEachAdapter('a request that comes while no time passes', timeless, (app) => {
  it.each([
    ['pay', '2'],
    ['pay-soon', '1'],
  ])(
    'C059: %s is answered 409 while the first one runs, to come back in %s whole seconds',
    async (path, seconds) => {
      const first = await whileRunning(app(), `/invoices/1/${path}`, async () => {
        const second = await app().send(`/invoices/1/${path}`, { key });
        expect(problemOf(second)).toEqual({
          sent: 409,
          type: 'about:blank',
          title: 'Conflict',
          status: 409,
          detail: expect.stringContaining('again later'),
          code: 'IDEMPOTENCY_IN_PROGRESS',
          outcome: 'not-started',
        });
        expect(second.headers['retry-after']).toBe(seconds);
        expect(second.headers).not.toHaveProperty('idempotent-replayed');
      });
      expect(first).toMatchObject({ status: 201, text: '{"id":"1","run":1}' });
      expectReplay(await app().send(`/invoices/1/${path}`, { key }));
      expect(app().calls.count).toBe(1);
    },
  );
});

describeOnEachAdapter('a request that is not carried out', parts, (app) => {
  it('C059: is not answered until the first one is done where it may wait, and then like that one', async () => {
    let second: Promise<Answer> | undefined;
    const first = await whileRunning(app(), '/invoices/1/wait', async () => {
      second = app().send('/invoices/1/wait', { key });
      await Promise.resolve();
    });
    const again = (await second) as Answer;
    expect(again).toMatchObject({ status: 201, text: first.text });
    expectReplay(again);
    expect(app().calls.count).toBe(1);
  });

  it('is answered like the first one, whose client went away before its answer came', async () => {
    const client = new AbortController();
    const open = app().calls.close();
    const first = app().send('/invoices/1/wait', { key, signal: client.signal });
    const gone = expect(first).rejects.toThrow('aborted');
    await app().calls.arrival();
    client.abort();
    await gone;
    const second = app().send('/invoices/1/wait', { key });
    open();
    expect(await second).toMatchObject({ status: 201, text: '{"id":"1","run":1}' });
    expect(app().calls.count).toBe(1);
  });

  it('is answered 422 for other data, also while the first one runs', async () => {
    await whileRunning(app(), '/invoices/1/pay', async () => {
      expect(await app().send('/invoices/1/pay', { key, body: { amount: 6 } })).toMatchObject({
        status: 422,
      });
    });
  });

  it.each([
    ['another body', '/invoices/1/pay?a=1&b=2', { amount: 6 }],
    ['no body', '/invoices/1/pay?a=1&b=2', undefined],
    ['another route parameter', '/invoices/2/pay?a=1&b=2', { amount: 5 }],
    ['another query', '/invoices/1/pay?a=1&b=3', { amount: 5 }],
  ])('is answered 422 when the key came with %s', async (_what, path, body) => {
    await app().send('/invoices/1/pay?a=1&b=2', { key, body: { amount: 5 } });
    const second = await app().send(path, { key, body });
    expect(problemOf(second)).toEqual({
      sent: 422,
      type: 'about:blank',
      title: 'Unprocessable Entity',
      status: 422,
      detail: expect.stringContaining('a new key for a new operation'),
      code: 'IDEMPOTENCY_KEY_REUSED',
      outcome: 'not-started',
    });
    expect(second.headers).not.toHaveProperty('retry-after');
    expect(app().calls.count).toBe(1);
  });

  it('is not taken for another one because its data are in another order', async () => {
    await app().send('/invoices/1/pay?a=1&b=2', { key, body: { amount: 5, currency: 'EUR' } });
    const second = await app().send('/invoices/1/pay?b=2&a=1', { key, body: { currency: 'EUR', amount: 5 } });
    expectReplay(second);
  });

  it('C121: is answered 503 when the store is away, and nothing is done', async () => {
    (places.at(-1) as MovingStore).isAway = true;
    const answer = await app().send('/invoices/1/pay', { key });
    expect(problemOf(answer)).toMatchObject({ sent: 503, code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
    expect(answer.headers).toMatchObject({ 'retry-after': '2' });
    expect(app().calls.count).toBe(0);
    (places.at(-1) as MovingStore).isAway = false;
    expect(await app().send('/invoices/1/pay', { key })).toMatchObject({ status: 201 });
  });

  it('gets its answer although the store goes away while the handler runs', async () => {
    const first = await whileRunning(app(), '/invoices/1/pay-soon', async () => {
      (places.at(-1) as MovingStore).isAway = true;
      await Promise.resolve();
    });
    expect(first).toMatchObject({ status: 201, text: '{"id":"1","run":1}' });
  });

  it('C026: is answered 503 where an earlier attempt was lost and must not be repeated', async () => {
    const lost = await app().send('/invoices/1/lose', { key });
    expect(problemOf(lost)).toMatchObject({ sent: 503, code: 'LEASE_LOST', outcome: 'unknown' });
    const second = await app().send('/invoices/1/lose', { key });
    expect(problemOf(second)).toMatchObject({
      sent: 503,
      code: 'IDEMPOTENCY_OUTCOME_UNKNOWN',
      outcome: 'unknown',
      detail: expect.stringContaining('unknown'),
    });
    expect(second.headers).not.toHaveProperty('retry-after');
    expect(app().calls.count).toBe(1);
  });

  it('is told neither the key nor what keeps it', async () => {
    await app().send('/invoices/1/pay', { key });
    const reused = await app().send('/invoices/1/pay', { key, body: { amount: 6 } });
    (places.at(-1) as MovingStore).isAway = true;
    const away = await app().send('/invoices/1/pay', { key });
    for (const { text } of [reused, away])
      expect(text).not.toMatch(/client-key|invoices|memory|ECONNREFUSED/);
  });
});
