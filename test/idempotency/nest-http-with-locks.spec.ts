import { Controller, Param, Post, Query } from '@nestjs/common';
import {
  AcceptFencingToken,
  currentLease,
  fencingHeaders,
  Idempotent,
  IdempotencyService,
  LockContext,
  Locked,
  type RecordView,
} from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';

import { Calls, describeOnEachAdapter, expectReplay, problemOf } from './nest-http-adapters.js';

@Controller('invoices')
class Invoices {
  constructor(
    private readonly calls: Calls,
    private readonly lock: LockContext,
  ) {}

  @Post(':id/idempotent-first')
  @Idempotent()
  @Locked('invoice:<id>', { waitMs: 0 })
  async idempotentFirst(@Param('id') id: string): Promise<object> {
    return this.#pay(id);
  }

  @Post(':id/locked-first')
  @Locked('invoice:<id>', { waitMs: 0 })
  @Idempotent()
  async lockedFirst(@Param('id') id: string): Promise<object> {
    return this.#pay(id);
  }

  @Locked('invoice:<id>', { waitMs: 0 })
  @Post(':id/route-between')
  @Idempotent()
  async routeBetween(@Param('id') id: string): Promise<object> {
    return this.#pay(id);
  }

  async #pay(id: string): Promise<object> {
    const { attempt, idempotencyKey } = this.lock;
    return this.calls.run((run) => ({
      id,
      run,
      key: currentLease()?.key,
      attempt,
      sameEachTime: idempotencyKey.length > 0,
    }));
  }
}

const key = 'k1';
const orders = ['idempotent-first', 'locked-first', 'route-between'];

describeOnEachAdapter('@Idempotent() with @Locked, in either order', { controllers: [Invoices] }, (app) => {
  const recordOf = (path: string): Promise<RecordView | null> =>
    app()
      .nest.get(IdempotencyService)
      .inspect({ key, operation: `POST /invoices/:id/${path}` });

  it.each(orders)('%s: runs under the lock, and is answered again without it', async (path) => {
    const text = '{"id":"1","run":1,"key":"invoice:1","attempt":1,"sameEachTime":true}';
    expect(await app().send(`/invoices/1/${path}`, { key })).toMatchObject({ status: 201, text });
    const release = await LockTesting.holdElsewhere('invoice:1');
    const again = await app().send(`/invoices/1/${path}`, { key });
    expect(again).toMatchObject({ status: 201, text });
    expectReplay(again);
    await release();
  });

  it.each(orders)('%s: is answered 423 when the lock is busy, and no attempt counts', async (path) => {
    const release = await LockTesting.holdElsewhere('invoice:1');
    const busy = await app().send(`/invoices/1/${path}`, { key });
    expect(problemOf(busy)).toMatchObject({ sent: 423, code: 'LOCK_TIMEOUT', outcome: 'not-started' });
    expect(busy.headers['retry-after']).toMatch(/^[1-9]\d*$/);
    await expect(recordOf(path)).resolves.toBeNull();
    await release();
    expect(await app().send(`/invoices/1/${path}`, { key })).toMatchObject({
      status: 201,
      text: expect.stringContaining('"attempt":1'),
    });
  });
});

@Controller('orders')
class Orders {
  constructor(
    private readonly calls: Calls,
    private readonly lock: LockContext,
  ) {}

  @Post(':id/idempotent-first')
  @Idempotent()
  @AcceptFencingToken('order:<id>')
  async idempotentFirst(@Param('id') id: string, @Query('by') by?: string): Promise<object> {
    return this.#ship(id, by);
  }

  @Post(':id/token-first')
  @AcceptFencingToken('order:<id>')
  @Idempotent()
  async tokenFirst(@Param('id') id: string, @Query('by') by?: string): Promise<object> {
    return this.#ship(id, by);
  }

  @Post(':id/under-lock')
  @AcceptFencingToken('order:<id>')
  @Locked('shelf:<id>')
  @Idempotent()
  async underLock(@Param('id') id: string, @Query('by') by?: string): Promise<object> {
    return this.#ship(id, by);
  }

  @Post(':id/over-lock')
  @Locked('shelf:<id>')
  @Idempotent()
  @AcceptFencingToken('order:<id>')
  async overLock(@Param('id') id: string, @Query('by') by?: string): Promise<object> {
    return this.#ship(id, by);
  }

  async #ship(id: string, by: string | undefined): Promise<object> {
    const { attempt } = this.lock;
    return this.calls.run((run) => ({ id, by, run, attempt, ...fencingHeaders(`order:${id}`) }));
  }
}

const tokenOrders = ['idempotent-first', 'token-first', 'under-lock', 'over-lock'];

describeOnEachAdapter(
  '@Idempotent() with @AcceptFencingToken, in either order',
  { controllers: [Orders] },
  (app) => {
    const ship = (path: string, token?: string) =>
      app().send(`/orders/7/${path}?by=me`, {
        key,
        headers: token === undefined ? {} : { 'Fencing-Token': token },
      });

    it.each(tokenOrders)('%s: runs with the token, and gives the answer again', async (path) => {
      const text = '{"id":"7","by":"me","run":1,"attempt":1,"Fencing-Token":"42"}';
      expect(await ship(path, '42')).toMatchObject({ status: 201, text });
      const again = await ship(path, '43');
      expect(again).toMatchObject({ status: 201, text });
      expectReplay(again);
      expect(app().calls.count).toBe(1);
    });

    it.each(['idempotent-first', 'token-first', 'under-lock'])(
      '%s: has done nothing without a token, keeps nothing of it, and counts no attempt',
      async (path) => {
        expect(problemOf(await ship(path))).toMatchObject({ sent: 428, outcome: 'not-started' });
        expect(problemOf(await ship(path, 'x'))).toMatchObject({ sent: 400, outcome: 'not-started' });
        expect(app().calls.count).toBe(0);
        expect(await ship(path, '42')).toMatchObject({
          status: 201,
          text: expect.stringContaining('"attempt":1'),
        });
      },
    );

    it('is answered 503 without a token that is asked for under a lock: whatever fails there is in doubt', async () => {
      expect(problemOf(await ship('over-lock'))).toMatchObject({ sent: 503, outcome: 'unknown' });
      expect(await ship('over-lock', '42')).toMatchObject({ text: expect.stringContaining('"attempt":1') });
      expect(app().calls.count).toBe(1);
    });

    it('asks for the token before a known answer only where @AcceptFencingToken stands first', async () => {
      for (const path of tokenOrders) await ship(path, '42');
      expectReplay(await ship('idempotent-first'));
      expect(await ship('token-first')).toMatchObject({ status: 428 });
    });
  },
);
