import type { Server } from 'node:http';

import {
  Body,
  Controller,
  Get,
  Injectable,
  NotFoundException,
  Param,
  ParseIntPipe,
  Post,
  type DynamicModule,
  type INestApplication,
} from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { CurrentLease, currentLease, Locked, LockContext, type Lease } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';
import { Observable, of } from 'rxjs';
import request from 'supertest';

@Injectable()
class Ledger {
  @Locked('ledger', { waitMs: 0 })
  async book(): Promise<void> {}
}

@Controller('invoices')
class Invoices {
  constructor(
    private readonly context: LockContext,
    private readonly ledger: Ledger,
  ) {}

  @Post(':id/pay')
  @Locked('invoice:<id>', { waitMs: 0 })
  async pay(@Param('id') id: string, @CurrentLease() lease?: Lease): Promise<object> {
    return Promise.resolve({ id, key: lease?.key, sameToken: lease?.token === this.context.token });
  }

  @Post(':id/book')
  @Locked('invoice:<0>', { waitMs: 0 })
  async book(@Param('id') _id: string): Promise<void> {
    await this.ledger.book();
  }

  @Post(':id/late')
  @Locked('invoice:<id>')
  async late(@Param('id') id: string): Promise<void> {
    await LockTesting.lose(`invoice:${id}`);
  }

  @Get(':id/lines')
  @Locked('invoice:<0>')
  lines(@Param('id') _id: string): Observable<object> {
    return of({ key: currentLease()?.key });
  }

  @Get(':id')
  find(@Param('id', ParseIntPipe) id: number): object {
    if (id === 404) throw new NotFoundException('no such invoice');
    if (id === 500) throw new TypeError('a mistake');
    return { id, lease: this.context.lease() ?? null };
  }

  @Post('order')
  @Locked('order:<body.id>')
  async order(@Body() body: { id?: string }): Promise<unknown> {
    return Promise.resolve(body.id);
  }

  @Post('plain')
  plain(@Body() body: { token?: string }): unknown {
    return body.token === undefined ? { token: this.context.token } : body;
  }
}

let app: INestApplication;
const server = (): Server => app.getHttpServer() as Server;

async function boot(locks: DynamicModule): Promise<void> {
  const module = await Test.createTestingModule({
    imports: [locks],
    controllers: [Invoices],
    providers: [Ledger],
  }).compile();
  app = module.createNestApplication<INestApplication>({ logger: false });
  await app.init();
}

const post = (path: string): request.Test => request(server()).post(`/invoices/${path}`).send({});
const get = (path: string): request.Test => request(server()).get(`/invoices/${path}`);

afterEach(async () => {
  await LockTesting.reset();
  await app.close();
});

describe('a request that locks', () => {
  beforeEach(() => boot(LockTesting.module()));

  it('gets its lease as a parameter, beside what Nest passes', async () => {
    await post('42/pay').expect(201, { id: '42', key: 'invoice:42', sameToken: true });
    LockTesting.expectIdle();
  });

  it('C127: may be answered by an Observable, which runs under the lock', async () => {
    await get('42/lines').expect(200, { key: 'invoice:42' });
    LockTesting.expectIdle();
  });

  it('is answered 423 when the key is busy, as a problem document, with Retry-After', async () => {
    const release = await LockTesting.holdElsewhere('invoice:42');
    const { status, headers, body } = await post('42/pay');
    expect(status).toBe(423);
    expect(headers['content-type']).toBe('application/problem+json; charset=utf-8');
    expect(Number(headers['retry-after'])).toBeGreaterThanOrEqual(1);
    expect(body).toEqual({
      type: 'about:blank',
      title: 'Locked',
      status: 423,
      detail: expect.stringContaining('Nothing was done'),
      code: 'LOCK_TIMEOUT',
      outcome: 'not-started',
    });
    await release();
    await post('42/pay').expect(201);
  });

  it('C121: is answered 503 when the store is away, and does not run', async () => {
    const { status, body, headers } = await LockTesting.unavailable(() => post('42/pay'));
    expect({ status, body }).toMatchObject({
      status: 503,
      body: { code: 'STORE_UNAVAILABLE', outcome: 'not-started' },
    });
    expect(headers).toMatchObject({ 'retry-after': '2' });
    await post('42/pay').expect(201);
  });

  it('is answered 503, and never 4xx, when it is unknown what it did', async () => {
    await post('42/late')
      .expect(503)
      .expect(({ body }) => {
        expect(body).toMatchObject({ code: 'LEASE_LOST', outcome: 'unknown' });
      });
    const release = await LockTesting.holdElsewhere('ledger');
    // The inner lock was busy; what the body did before that, nobody knows.
    await post('42/book')
      .expect(503)
      .expect(({ body }) => {
        expect(body).toMatchObject({ code: 'LOCK_TIMEOUT', outcome: 'unknown' });
      });
    await release();
  });

  it('is answered 400 when the key cannot be made', async () => {
    await post('order')
      .expect(400)
      .expect(({ body }) => {
        expect(body).toMatchObject({ code: 'LOCK_KEY_INVALID', outcome: 'not-started' });
      });
    LockTesting.expectIdle();
  });

  it('tells nobody outside which keys and methods there are', async () => {
    const release = await LockTesting.holdElsewhere('invoice:42');
    const { text } = await post('42/pay');
    expect(text).not.toContain('invoice:42');
    await release();
  });
});

describe('C025: a request that does not lock', () => {
  beforeEach(() => boot(LockTesting.module()));

  it('is answered as if the module were not there, also when it fails', async () => {
    await get('7').expect(200, { id: 7, lease: null });
    await get('x').expect(400, {
      statusCode: 400,
      message: 'Validation failed (numeric string is expected)',
      error: 'Bad Request',
    });
    await get('404').expect(404, { statusCode: 404, message: 'no such invoice', error: 'Not Found' });
    await get('500').expect(500, { statusCode: 500, message: 'Internal server error' });
  });

  it('has no token: reading it fails, and is never undefined', async () => {
    await post('plain')
      .expect(503)
      .expect(({ body }) => {
        expect(body).toMatchObject({ code: 'LOCK_NOT_HELD' });
      });
  });
});
