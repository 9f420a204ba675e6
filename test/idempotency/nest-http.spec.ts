import type { Server } from 'node:http';
import { connect } from 'node:net';

import {
  BadRequestException,
  Body,
  Controller,
  Get,
  HttpCode,
  HttpException,
  Injectable,
  Next,
  Param,
  ParseIntPipe,
  Post,
  Redirect,
  Req,
  Res,
  Sse,
  StreamableFile,
  UseGuards,
  UseInterceptors,
  type CallHandler,
  type CanActivate,
  type ExecutionContext,
  type INestApplication,
  type NestInterceptor,
  type Provider,
} from '@nestjs/common';
import { APP_GUARD } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import {
  Idempotent,
  IdempotencyService,
  Locked,
  type IdempotencyModuleOptions,
} from 'nestjs-distributed-lock';
import { memoryIdempotencyStore } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';
import { map, of, type Observable } from 'rxjs';
import request from 'supertest';

interface Headers {
  status(code: number): Headers;
  header(name: string, value: string): Headers;
}

class Receipt {
  constructor(
    readonly id: string,
    readonly secret: string,
  ) {}
}

/** As a serializer does: it knows the class. */
class HidesSecrets implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(map((value) => (value instanceof Receipt ? { id: value.id } : value)));
  }
}

const known = { type: Receipt, revive: (kept: Receipt) => new Receipt(kept.id, kept.secret) };

@Injectable()
class Calls {
  count = 0;
  gate: Promise<void> = Promise.resolve();
  failWith: Error | undefined;
}

@Controller('invoices')
class Invoices {
  constructor(private readonly calls: Calls) {}

  async #run<T>(value: T): Promise<T> {
    this.calls.count += 1;
    const { failWith } = this.calls;
    await this.calls.gate;
    if (failWith) throw failWith;
    return value;
  }

  @Post(':id/pay')
  @Locked('invoice:<id>', { waitMs: 0 })
  @Idempotent()
  async pay(@Param('id') id: string, @Body() body: { amount?: number }): Promise<object> {
    return this.#run({ id, amount: body.amount ?? null, run: this.calls.count + 1 });
  }

  @Idempotent()
  @Post(':id/dynamic')
  async dynamic(@Param('id') id: string, @Res({ passthrough: true }) response: Headers): Promise<object> {
    response.status(202).header('Location', `/jobs/${id}`).header('Set-Cookie', 'session=1');
    return this.#run({ run: this.calls.count + 1 });
  }

  @Post('nothing')
  @HttpCode(204)
  @Idempotent()
  async nothing(): Promise<void> {
    await this.#run(undefined);
  }

  @Post('ok')
  @HttpCode(200)
  @Idempotent()
  async ok(): Promise<object> {
    return this.#run([1, { a: null }]);
  }

  @Post('away')
  @Redirect('/elsewhere', 302)
  @Idempotent()
  async away(): Promise<object> {
    return this.#run({ url: `/receipts/${this.calls.count + 1}`, statusCode: 303 });
  }

  @Post('number/:nr')
  @Idempotent()
  async number(@Param('nr', ParseIntPipe) nr: number): Promise<object> {
    return this.#run({ nr });
  }

  @Post('named/:id')
  @Idempotent('payout:<id>')
  async named(@Param('id') id: string): Promise<object> {
    return this.#run({ id, run: this.calls.count + 1 });
  }

  @Post('receipt')
  @UseInterceptors(HidesSecrets)
  @Idempotent({ classes: { Receipt: known } })
  async receipt(): Promise<Receipt> {
    return this.#run(new Receipt('1', 's'));
  }

  @Post('file')
  @Idempotent()
  async file(): Promise<StreamableFile> {
    return this.#run(new StreamableFile(Buffer.from('content')));
  }

  @Post('stream')
  @Idempotent()
  async stream(): Promise<Observable<string>> {
    return this.#run(of('content'));
  }

  @Post('unknown-class')
  @UseInterceptors(HidesSecrets)
  @Idempotent()
  async unknownClass(): Promise<Receipt> {
    return this.#run(new Receipt('1', 's'));
  }

  @Post('mine')
  @Idempotent({ scope: (request: { headers: Record<string, string> }) => request.headers['x-user'] })
  async mine(@Req() message: { headers: Record<string, string> }): Promise<object> {
    return this.#run({ user: message.headers['x-user'] });
  }
}

let app: INestApplication;
const server = (): Server => app.getHttpServer() as Server;
const calls = (): Calls => app.get(Calls);
const post = (path: string, key?: string): request.Test => {
  const sent = request(server()).post(`/invoices/${path}`);
  return key === undefined ? sent : sent.set('Idempotency-Key', key);
};

async function boot(
  controller: new (...args: never[]) => object,
  idempotency?: IdempotencyModuleOptions,
  providers: Provider[] = [],
): Promise<void> {
  const module = await Test.createTestingModule({
    imports: [LockTesting.module(idempotency ? { idempotency } : {})],
    controllers: [controller],
    providers: [Calls, ...providers],
  }).compile();
  app = module.createNestApplication<INestApplication>({ logger: false });
  await app.init();
}

afterEach(async () => {
  await LockTesting.reset();
  await app.close();
});

describe('a handler with @Idempotent()', () => {
  beforeEach(() => boot(Invoices));

  it('C122: answers a repetition with the same status and body, marked, and does not run again', async () => {
    const first = await post('1/pay', 'k1').send({ amount: 5 });
    expect(first.headers).toMatchObject({ 'idempotency-status': 'created' });
    expect(first.headers).not.toHaveProperty('idempotent-replayed');
    const second = await post('1/pay', 'k1').send({ amount: 5 });
    expect({ status: second.status, text: second.text }).toEqual({ status: 201, text: first.text });
    expect(second.headers).toMatchObject({
      'idempotent-replayed': 'true',
      'idempotency-status': 'replayed',
      'cache-control': 'no-store',
    });
    expect(calls().count).toBe(1);
  });

  it('takes a key with and without quotes as the same', async () => {
    await post('1/pay', '"k1"').send({}).expect(201);
    await post('1/pay', 'k1').send({}).expect(201);
    expect(calls().count).toBe(1);
  });

  it('C122: keeps a status and headers that the handler has set, and no cookie', async () => {
    await post('1/dynamic', 'k1').expect(202);
    const { status, headers, body } = await post('1/dynamic', 'k1');
    expect({ status, body }).toEqual({ status: 202, body: { run: 1 } });
    expect(headers).toMatchObject({ location: '/jobs/1' });
    expect(headers).not.toHaveProperty('set-cookie');
  });

  it.each([
    ['nothing', 204, ''],
    ['ok', 200, '[1,{"a":null}]'],
  ])('repeats %s with its status %i', async (path, status, text) => {
    for (let turn = 0; turn < 2; turn += 1) expect(await post(path, 'k1')).toMatchObject({ status, text });
    expect(calls().count).toBe(1);
  });

  it('repeats a redirect', async () => {
    for (let turn = 0; turn < 2; turn += 1)
      expect(await post('away', 'k1')).toMatchObject({
        status: 303,
        headers: { location: '/receipts/1' },
      });
  });

  it('C088: repeats a decision such as 402, and runs again after 400, 500 and what nobody foresaw', async () => {
    calls().failWith = new HttpException({ reason: 'declined' }, 402);
    await post('1/pay', 'declined').send({}).expect(402, { reason: 'declined' });
    calls().failWith = undefined;
    const { status, body, headers } = await post('1/pay', 'declined').send({});
    expect({ status, body }).toEqual({ status: 402, body: { reason: 'declined' } });
    expect(headers).toMatchObject({ 'idempotent-replayed': 'true' });
    expect(calls().count).toBe(1);
    for (const error of [new BadRequestException(), new HttpException('', 500), new TypeError('a mistake')]) {
      calls().failWith = error;
      await post('1/pay', error.name).send({});
      calls().failWith = undefined;
      await post('1/pay', error.name).send({}).expect(201);
    }
  });

  it('keeps nothing of a request that a pipe refuses', async () => {
    await post('number/x', 'k1').expect(400);
    await post('number/7', 'k1').expect(201, { nr: 7 });
  });

  it('is answered 409 with Retry-After while the first request runs', async () => {
    let open!: () => void;
    calls().gate = new Promise((resolve) => (open = resolve));
    const first = post('1/pay', 'k1').send({}).then();
    try {
      while (calls().count === 0) await new Promise(setImmediate);
      const { status, body, headers } = await post('1/pay', 'k1').send({});
      expect({ status, body }).toMatchObject({
        status: 409,
        body: {
          code: 'IDEMPOTENCY_IN_PROGRESS',
          outcome: 'not-started',
          detail: expect.stringContaining('again'),
        },
      });
      expect(Number(headers['retry-after'])).toBeGreaterThanOrEqual(1);
      await post('1/pay', 'k1').send({ amount: 6 }).expect(422);
    } finally {
      open();
    }
    expect((await first).status).toBe(201);
    await post('1/pay', 'k1').send({}).expect(201);
    expect(calls().count).toBe(1);
  });

  it('is answered 422 when the key came with another payload or another route parameter', async () => {
    await post('1/pay', 'k1').send({ amount: 5 }).expect(201);
    const { status, body } = await post('1/pay', 'k1').send({ amount: 6 });
    expect({ status, body }).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } });
    await post('2/pay', 'k1').send({ amount: 5 }).expect(422);
    expect(calls().count).toBe(1);
  });

  it('is answered 423 when the lock is busy, and the key stays free', async () => {
    const release = await LockTesting.holdElsewhere('invoice:1');
    await post('1/pay', 'k1').send({}).expect(423);
    await release();
    await post('1/pay', 'k1').send({}).expect(201);
  });

  it.each([
    ['none', undefined],
    ['an empty one', ''],
    ['empty quotes', '""'],
    ['one of 256 bytes', 'x'.repeat(256)],
    ['a quote inside', 'a"b'],
    ['half a quote', '"ab'],
    ['a comma', 'a,b'],
    ['a tab', 'a\tb'],
    ['a letter beyond ASCII', 'schl\u00fcssel'],
  ])('is answered 400 with a sentence for %s, and does not run', async (_what, key) => {
    const { status, body } = await post('ok', key);
    expect({ status, body }).toMatchObject({
      status: 400,
      body: {
        code: 'IDEMPOTENCY_KEY_INVALID',
        outcome: 'not-started',
        detail: expect.stringMatching(/Idempotency-Key header.*Nothing was done\./),
      },
    });
    expect(calls().count).toBe(0);
  });

  it('accepts 255 characters', async () => {
    await post('ok', 'x'.repeat(255)).expect(200);
  });

  it('is answered 400 for two headers, also when they are equal', async () => {
    await app.listen(0, '127.0.0.1');
    const { port } = server().address() as { port: number };
    const answer = await new Promise<string>((resolve, reject) => {
      let text = '';
      const socket = connect(port, '127.0.0.1', () =>
        socket.write(
          'POST /invoices/ok HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nIdempotency-Key: a\r\n' +
            'Content-Length: 0\r\nConnection: close\r\n\r\n',
        ),
      );
      socket.on('data', (chunk) => (text += String(chunk)));
      socket.on('error', reject).on('close', () => resolve(text));
    });
    expect(answer).toMatch(/^HTTP\/1\.1 400 [^]*IDEMPOTENCY_KEY_INVALID/);
    expect(calls().count).toBe(0);
  });

  it('takes a written key without any header, and repeats status and body', async () => {
    await post('named/1').expect(201, { id: '1', run: 1 });
    const { status, body, headers } = await post('named/1');
    expect({ status, body }).toEqual({ status: 201, body: { id: '1', run: 1 } });
    expect(headers).toMatchObject({ 'idempotent-replayed': 'true' });
    await expect(app.get(IdempotencyService).inspect('payout:1')).resolves.toMatchObject({ attempt: 1 });
  });

  it('gives an instance again as one where its class is registered', async () => {
    for (let turn = 0; turn < 2; turn += 1) await post('receipt', 'k1').expect(201, { id: '1' });
    expect(calls().count).toBe(1);
  });

  it('does not keep an instance of another class, which a serializer could not hide the secrets of', async () => {
    await post('unknown-class', 'k1').expect(201);
    const { status, body, text } = await post('unknown-class', 'k1');
    expect({ status, body }).toMatchObject({
      status: 500,
      body: { code: 'IDEMPOTENCY_RESULT_OMITTED', outcome: 'committed' },
    });
    expect(text).not.toContain('"s"');
    expect(calls().count).toBe(1);
  });

  it('C122: sends a file once and says later that it is not kept; refuses a stream', async () => {
    expect((await post('file', 'k1').expect(201)).body).toEqual(Buffer.from('content'));
    const { status, body } = await post('file', 'k1');
    expect({ status, body }).toMatchObject({ status: 500, body: { code: 'IDEMPOTENCY_RESULT_OMITTED' } });
    expect(calls().count).toBe(1);
    expect((await post('stream', 'k1')).body).toMatchObject({ status: 503, outcome: 'unknown' });
  });

  it('never gives one caller the answer of another with the same key', async () => {
    await post('mine', 'k1').set('X-User', 'a').expect(201, { user: 'a' });
    await post('mine', 'k1').set('X-User', 'b').expect(201, { user: 'b' });
    await post('mine', 'k1').set('X-User', 'a').expect(201, { user: 'a' });
    expect(calls().count).toBe(2);
    await post('mine', 'k1').expect(500);
    expect(calls().count).toBe(2);
  });

  it('refuses a request with credentials when nothing says whose they are', async () => {
    await post('ok', 'k1').set('Authorization', 'Bearer x').expect(500);
    await post('ok', 'k1').set('Cookie', 'session=1').expect(500);
    expect(calls().count).toBe(0);
  });

  it('is answered 500, and does not run, when it is called without a request', async () => {
    await expect(app.get(Invoices).pay('1', {})).rejects.toThrow(/called without a request/);
  });
});

@Injectable()
class SignedIn implements CanActivate {
  canActivate(): boolean {
    return true;
  }
}

describe('at boot, a handler with @Idempotent()', () => {
  beforeEach(() => boot(Invoices));

  it('is refused with @Res() and with @Next()', async () => {
    @Controller()
    class WithResponse {
      @Post()
      @Idempotent()
      async run(@Res() _response: unknown): Promise<void> {}
    }
    @Controller()
    class WithNext {
      @Post()
      @Idempotent()
      async run(@Next() _next: unknown): Promise<void> {}
    }
    await expect(boot(WithResponse)).rejects.toThrow(/WithResponse\.run: .*passthrough: true/);
    await expect(boot(WithNext)).rejects.toThrow(/WithNext\.run/);
  });

  it('is refused for server-sent events', async () => {
    @Controller()
    class Events {
      @Sse()
      @Idempotent()
      async run(): Promise<never> {
        return Promise.reject(new Error('never called'));
      }
    }
    await expect(boot(Events)).rejects.toThrow(/Events\.run: a stream of events/);
  });

  it('is refused behind a guard unless something says who a caller is', async () => {
    @Controller()
    class Guarded {
      @UseGuards(SignedIn)
      @Post()
      @Idempotent()
      async run(): Promise<void> {}
    }
    await expect(boot(Guarded)).rejects.toThrow(/Guarded\.run: it has guards.*scope: \(request/);
    await app.close();
    const caller = (sent: { user: { id: string } }): string => sent.user.id;
    await boot(Guarded, { store: memoryIdempotencyStore(), caller });
  });

  it('is refused under a guard of the whole application as well', async () => {
    @Controller()
    class Open {
      @Post()
      @Idempotent()
      async run(): Promise<void> {}
    }
    await app.close();
    await boot(Open);
    await app.close();
    const guard = { provide: APP_GUARD, useClass: SignedIn };
    await expect(boot(Open, undefined, [guard])).rejects.toThrow(
      /Open\.run: it has guards.*scope: \(request/,
    );
  });

  it('is not refused behind a guard with a scope, or with a written key', async () => {
    await app.close();
    @UseGuards(SignedIn)
    @Controller()
    class Guarded {
      @Post('a')
      @Idempotent({ scope: 'global' })
      async run(): Promise<void> {}

      @Get('b/:id')
      @Idempotent('b:<id>')
      async named(@Param('id') id: string): Promise<string> {
        return Promise.resolve(id);
      }
    }
    await boot(Guarded);
  });
});
