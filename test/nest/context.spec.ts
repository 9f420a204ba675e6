import { EventEmitter } from 'node:events';
import type { Server } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { Controller, Get, Injectable, Param, Scope, type INestApplication } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { currentLease, Locked, LockContext, lockKey, LockService } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';
import request from 'supertest';

const InvoiceKey = lockKey('invoice:<id>');

@Injectable()
class Deep {
  constructor(private readonly context: LockContext) {}

  key(): string | undefined {
    return this.context.lease()?.key;
  }
}

@Injectable({ scope: Scope.REQUEST })
class PerRequest {
  constructor(private readonly context: LockContext) {}

  key(): string | undefined {
    return this.context.lease()?.key;
  }
}

@Controller()
class Invoices {
  readonly emitter = new EventEmitter();

  constructor(
    private readonly deep: Deep,
    private readonly perRequest: PerRequest,
    private readonly context: LockContext,
  ) {}

  /** Reads the context in all the places that lose it elsewhere. */
  @Get('invoices/:id')
  @Locked(InvoiceKey)
  async settle(@Param('id') id: string): Promise<object> {
    const seen = [this.deep.key(), this.perRequest.key()];
    await sleep(Math.random() * 10);
    seen.push(this.deep.key());
    this.emitter.once(`event ${id}`, () => seen.push(this.deep.key()));
    this.emitter.emit(`event ${id}`);
    await new Promise<void>((resolve) => {
      setTimeout(() => {
        seen.push(this.deep.key());
        setImmediate(() => {
          seen.push(this.perRequest.key());
          resolve();
        });
      }, Math.random() * 10);
    });
    return { id, seen: [...new Set(seen)], token: this.context.token };
  }

  @Get('outside')
  outside(): object {
    return { lease: this.context.lease() ?? null };
  }
}

let app: INestApplication;
let context: LockContext;
let locks: LockService;

beforeEach(async () => {
  const module = await Test.createTestingModule({
    imports: [LockTesting.module()],
    controllers: [Invoices],
    providers: [Deep, PerRequest],
  }).compile();
  app = await module.createNestApplication({ logger: false }).init();
  context = app.get(LockContext);
  locks = app.get(LockService);
});

afterEach(() => app.close());

describe('C054: the context of a lock', () => {
  it('is that of the own request in 200 parallel ones, in callbacks, timers and event handlers too', async () => {
    await app.listen(0, '127.0.0.1');
    const ids = Array.from({ length: 200 }, (_, i) => String(i));
    const answers = await Promise.all(
      ids.map(async (id) => {
        const { body } = await request(app.getHttpServer() as Server).get(`/invoices/${id}`);
        return body as { id: string; seen: string[]; token: number };
      }),
    );
    for (const { id, seen, token } of answers) {
      expect(seen).toEqual([`invoice:${id}`]);
      expect(token).toBe(LockTesting.tokenOf(InvoiceKey({ id })));
    }
    expect(new Set(answers.map(({ token }) => token)).size).toBe(200);
    await request(app.getHttpServer() as Server)
      .get('/outside')
      .expect(200, { lease: null });
    LockTesting.expectIdle();
  });

  it('is absent outside, and does not leak to whoever calls', async () => {
    expect(context.lease()).toBeUndefined();
    await locks.withLock('a', () => undefined);
    expect(context.lease()).toBeUndefined();
    expect(currentLease()).toBeUndefined();
  });

  it('C100: is "not held" in what outlives the call, also for a named key', async () => {
    const outlived = await locks.withLock('a', () => ({
      token: sleep(5).then(() => context.token),
      named: sleep(5).then(() => context.tokenFor('a')),
      lease: sleep(5).then(() => context.lease()),
    }));
    await expect(outlived.token).rejects.toMatchObject({ code: 'LOCK_NOT_HELD' });
    await expect(outlived.named).rejects.toMatchObject({ code: 'LOCK_NOT_HELD' });
    await expect(outlived.lease).resolves.toBeUndefined();
  });
});

describe('LockContext', () => {
  it('throws, and is never undefined, where nothing is held', () => {
    const notHeld = expect.objectContaining({ code: 'LOCK_NOT_HELD' });
    expect(() => context.token).toThrow(notHeld);
    expect(() => context.tokenFor('a')).toThrow(notHeld);
    expect(() => context.signal).toThrow(notHeld);
    expect(() => context.assertHeld()).toThrow(notHeld);
    expect(context.lease('a')).toBeUndefined();
  });

  it('wants the key to be named when several are held, by name, by key or by template', async () => {
    await locks.withLock(InvoiceKey({ id: 1 }), async (outer) => {
      await locks.withLock('report', (inner) => {
        expect(() => context.token).toThrow(
          /Several locks are held here \("report", "invoice:1"\).*tokenFor\(key\)/,
        );
        expect(() => context.signal).toThrow(/Several locks/);
        expect(() => context.lease()).toThrow(/Several locks/);
        expect(context.tokenFor('report')).toBe(inner.token);
        expect(context.tokenFor('invoice:1')).toBe(outer.token);
        expect(context.tokenFor(InvoiceKey({ id: 1 }))).toBe(outer.token);
        expect(context.tokenFor(InvoiceKey)).toBe(outer.token);
        expect(context.lease({ key: 'report', template: 'report' })).toBe(inner);
        expect(() => context.tokenFor('other')).toThrow(/No lock on "other" is held here/);
      });
    });
  });

  it('refuses to choose among several keys of one template', async () => {
    await locks.withLock(InvoiceKey({ id: 1 }), () =>
      locks.withLock(InvoiceKey({ id: 2 }), () => {
        expect(() => context.tokenFor(InvoiceKey)).toThrow(
          /made from "invoice:<id>".*"invoice:2", "invoice:1"/,
        );
      }),
    );
  });

  it('says LEASE_LOST at the first reading after the loss, whatever is read', async () => {
    const call = locks.withLock('a', async () => {
      const { signal } = context;
      await LockTesting.lose('a');
      const lost = expect.objectContaining({ code: 'LEASE_LOST', reason: 'taken-over' });
      expect(() => context.token).toThrow(lost);
      expect(() => context.tokenFor('a')).toThrow(lost);
      expect(() => context.signal).toThrow(lost);
      expect(() => context.lease()).toThrow(lost);
      expect(() => context.assertHeld()).toThrow(lost);
      expect(signal.aborted).toBe(true);
      return 'late';
    });
    await expect(call).rejects.toMatchObject({ code: 'LEASE_LOST', value: 'late' });
  });

  it('asserts all locks of the call chain', async () => {
    const call = locks.withLock('outer', () =>
      locks.withLock('inner', async () => {
        context.assertHeld();
        await LockTesting.lose('outer');
        expect(() => context.assertHeld()).toThrow(/"outer" was lost/);
      }),
    );
    await expect(call).rejects.toMatchObject({ code: 'LEASE_LOST' });
  });
});
