import { connect, type AddressInfo, type Server } from 'node:net';

import {
  applyDecorators,
  Controller,
  Get,
  HttpCode,
  Injectable,
  Param,
  ParseIntPipe,
  Post,
  Query,
  SetMetadata,
  type INestApplication,
  type Type,
} from '@nestjs/common';
import {
  ClientProxyFactory,
  Ctx,
  EventPattern,
  MessagePattern,
  Payload,
  TcpContext,
  Transport,
  type MicroserviceOptions,
} from '@nestjs/microservices';
import { ApiOperation, DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { Test } from '@nestjs/testing';
import {
  AcceptFencingToken,
  currentLease,
  fencingHeaders,
  LockContext,
  Locked,
  lockKey,
  LockService,
  StaleTokenError,
  type TokenInQuestion,
} from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';
import { withExpectedLockToken } from 'nestjs-distributed-lock/typeorm';
import { lastValueFrom, Observable } from 'rxjs';
import request from 'supertest';

const OrderKey = lockKey('invoice:<data.id>');
const InvoiceKey = lockKey('invoice:<id>');

/** Stands for a database: remembers what it was asked, and the highest token of each key. */
class RememberingFence {
  readonly asked: TokenInQuestion[] = [];
  readonly #highest = new Map<string, number>();

  beforeAcquire(): void {}

  async raise(): Promise<void> {}

  async accept(token: TokenInQuestion): Promise<void> {
    this.asked.push(token);
    const highest = this.#highest.get(token.qualifiedKey) ?? 0;
    if (token.token < highest) {
      throw new StaleTokenError('a newer owner is there', { key: token.key, outcome: 'not-started' });
    }
    this.#highest.set(token.qualifiedKey, token.token);
    return Promise.resolve();
  }
}

async function boot(...classes: Type[]): Promise<{ app: INestApplication; fence: RememberingFence }> {
  const module = await Test.createTestingModule({
    imports: [LockTesting.module()],
    controllers: classes,
  }).compile();
  const fence = new RememberingFence();
  module.get(LockService).fences.add(fence);
  const app = await module.createNestApplication<INestApplication>({ logger: false }).init();
  return { app, fence };
}

const serverOf = (app: INestApplication): Server => app.getHttpServer() as Server;

describe('A route that takes fencing tokens', () => {
  @Controller('invoices/:id')
  class Invoices {
    constructor(private readonly lock: LockContext) {}

    @Post('pay')
    @AcceptFencingToken(InvoiceKey)
    async pay(@Param('id') id: string, extra: unknown = 'none'): Promise<object> {
      const { lock } = this;
      return Promise.resolve({ id, extra, token: lock.token, ofKey: lock.tokenFor(InvoiceKey) });
    }

    @Post('maybe')
    @AcceptFencingToken('invoice:<0>', { required: false })
    async maybe(@Param('id') id: string): Promise<object> {
      return Promise.resolve({ id, headers: codeOrValue(() => fencingHeaders()) });
    }

    @Post('stream')
    @AcceptFencingToken((id: string) => InvoiceKey({ id }))
    stream(@Param('id') _id: string): Observable<object> {
      return new Observable((subscriber) => {
        setImmediate(() => {
          subscriber.next({ token: this.lock.token });
          subscriber.complete();
        });
      });
    }

    @Post('plain')
    plain(): object {
      return { headers: codeOrValue(() => fencingHeaders()) };
    }
  }

  let app: INestApplication;
  let fence: RememberingFence;
  beforeAll(async () => {
    ({ app, fence } = await boot(Invoices));
    await app.listen(0, '127.0.0.1');
  });
  afterAll(() => app.close());

  const send = (route: string, token?: string) => {
    const call = request(serverOf(app)).post(`/invoices/${route}`);
    return token === undefined ? call : call.set('Fencing-Token', token);
  };

  it('makes the key from its own parameters, and shows the token to its work', async () => {
    await send('42/pay', '17').expect(201, { id: '42', extra: 'none', token: 17, ofKey: 17 });
    expect(fence.asked.at(-1)).toMatchObject({
      key: 'invoice:42',
      token: 17,
      store: 'default',
      storeId: expect.stringMatching(/:default$/),
    });
  });

  it('works for an Observable, for as long as it runs, and by position or function', async () => {
    await send('42/stream', '18').expect(201, { token: 18 });
    await send('42/maybe', '18').expect(201, { id: '42', headers: { 'Fencing-Token': '18' } });
  });

  it('answers 428 where the token is missing, as a problem document that names neither keys nor methods', async () => {
    const { status, headers, body, text } = await send('42/pay');
    expect(status).toBe(428);
    expect(headers['content-type']).toBe('application/problem+json; charset=utf-8');
    expect(body).toEqual({
      type: 'about:blank',
      title: 'Precondition Required',
      status: 428,
      detail: expect.stringContaining('Fencing-Token'),
      code: 'FENCING_TOKEN_REQUIRED',
      outcome: 'not-started',
    });
    expect(text).not.toMatch(/invoice:|Invoices/);
  });

  it('answers 409 to a stale one', async () => {
    await send('7/pay', '20').expect(201);
    const { status, body } = await send('7/pay', '19');
    expect({ status, body }).toMatchObject({
      status: 409,
      body: { title: 'Conflict', status: 409, code: 'FENCED_OUT', outcome: 'not-started' },
    });
  });

  it.each([
    '',
    '-1',
    '+1',
    '1.0',
    '1e3',
    '0x1',
    '01',
    '1,2',
    '1, 1',
    'abc',
    '"1"',
    'NaN',
    '9007199254740992',
    '1 2',
  ])('answers 400 to %p', async (token) => {
    const before = fence.asked.length;
    await send('42/pay', token)
      .expect(400)
      .expect(({ body }) =>
        expect(body).toMatchObject({ code: 'FENCING_TOKEN_INVALID', outcome: 'not-started' }),
      );
    expect(fence.asked).toHaveLength(before);
  });

  it.each([
    ['two', ['17', '18']],
    ['the same one twice', ['18', '18']],
  ])('answers 400 to a request with %s', async (_, tokens) => {
    const { port } = serverOf(app).address() as AddressInfo;
    const headers = tokens.map((token) => `Fencing-Token: ${token}\r\n`).join('');
    const answer = await raw(
      port,
      `POST /invoices/42/pay HTTP/1.1\r\nHost: a\r\n${headers}Content-Length: 0\r\nConnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect(answer).toContain('FENCING_TOKEN_INVALID');
  });

  it('without required, runs without a token, which is then not there for its work', async () => {
    await send('42/maybe').expect(201, { id: '42', headers: 'LOCK_NOT_HELD' });
    await send('42/maybe', 'nonsense').expect(400);
  });

  it('is the only one that looks at the header', async () => {
    await send('42/plain', '18').expect(201, { headers: 'LOCK_NOT_HELD' });
  });

  it('answers 503 when the database cannot say, and does not run', async () => {
    const accept = jest.spyOn(fence, 'accept').mockRejectedValueOnce(new Error('connection refused'));
    await send('42/pay', '30')
      .expect(503)
      .expect(({ body }) =>
        expect(body).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' }),
      );
    accept.mockRestore();
  });

  it('keeps 200 calls side by side apart', async () => {
    const { port } = serverOf(app).address() as AddressInfo;
    const url = `http://127.0.0.1:${port}`;
    const call = async (i: number): Promise<unknown> =>
      (
        await fetch(`${url}/invoices/side-${i}/pay`, {
          method: 'POST',
          headers: { 'Fencing-Token': `${i}` },
        })
      ).json();
    const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => call(i)));
    expect(answers).toEqual(
      Array.from({ length: 200 }, (_, i) => ({ id: `side-${i}`, extra: 'none', token: i, ofKey: i })),
    );
  });
});

describe('C056: @AcceptFencingToken above, below and among other decorators', () => {
  const routed = (path: string): MethodDecorator[] => [
    Get(`${path}/:id`),
    HttpCode(202),
    SetMetadata('role', 'clerk'),
    ApiOperation({ summary: 'settles an invoice' }),
  ];
  const takesToken = (): MethodDecorator => AcceptFencingToken('invoice:<id>') as MethodDecorator;

  @Controller()
  class Orders {
    @AcceptFencingToken('invoice:<id>')
    @applyDecorators(...routed('above'))
    async above(@Param('id', ParseIntPipe) id: number, @Query('by') by: string): Promise<object> {
      return Promise.resolve({ id, by, ...fencingHeaders() });
    }

    @applyDecorators(...routed('below'))
    @AcceptFencingToken('invoice:<id>')
    async below(@Param('id', ParseIntPipe) id: number, @Query('by') by: string): Promise<object> {
      return Promise.resolve({ id, by, ...fencingHeaders() });
    }

    @applyDecorators(...routed('within').slice(0, 2), takesToken(), ...routed('within').slice(2))
    async within(@Param('id', ParseIntPipe) id: number, @Query('by') by: string): Promise<object> {
      return Promise.resolve({ id, by, ...fencingHeaders() });
    }

    @Locked('audit:<id>')
    @AcceptFencingToken('invoice:<id>')
    @applyDecorators(...routed('under-lock'))
    async underLock(@Param('id', ParseIntPipe) id: number, @Query('by') by: string): Promise<object> {
      return Promise.resolve({
        id,
        by,
        ...fencingHeaders('invoice:42'),
        held: currentLease('audit:42')?.key,
      });
    }

    @applyDecorators(...routed('over-lock'))
    @AcceptFencingToken('invoice:<id>')
    @Locked('audit:<id>')
    async overLock(@Param('id', ParseIntPipe) id: number, @Query('by') by: string): Promise<object> {
      return Promise.resolve({
        id,
        by,
        ...fencingHeaders('invoice:42'),
        held: currentLease('audit:42')?.key,
      });
    }

    @applyDecorators(...routed('without'))
    async without(@Param('id', ParseIntPipe) id: number, @Query('by') by: string): Promise<object> {
      return Promise.resolve({ id, by });
    }
  }

  const NAMES = ['above', 'below', 'within', 'underLock', 'overLock'] as const;
  const pathOf = (name: string): string => name.replace('L', '-l');
  let app: INestApplication;
  beforeAll(async () => ({ app } = await boot(Orders)));
  afterAll(() => app.close());

  it.each(NAMES)('%s: keeps route, status and pipes', async (name) => {
    const get = (id: string) =>
      request(serverOf(app))
        .get(`/${pathOf(name)}/${id}?by=me`)
        .set('Fencing-Token', '7');
    const held = name.endsWith('Lock') ? { held: 'audit:42' } : {};
    await get('42').expect(202, { id: 42, by: 'me', 'Fencing-Token': '7', ...held });
    await get('x')
      .expect(400)
      .expect(({ body }) => expect(body).not.toHaveProperty('code'));
  });

  it.each(NAMES)('%s: keeps name, length and metadata, and is described by OpenAPI as before', (name) => {
    const method = Orders.prototype[name];
    expect({ name: method.name, length: method.length }).toEqual({ name, length: 2 });
    const metadata = (of: object) =>
      Object.fromEntries(
        Reflect.getMetadataKeys(of).map((key) => [String(key), Reflect.getMetadata(key, of)]),
      );
    expect({ ...metadata(method), path: '' }).toEqual({ ...metadata(Orders.prototype.without), path: '' });
    const types = Reflect.getMetadata('design:paramtypes', Orders.prototype, name);
    expect(types).toEqual([Number, String]);
    const { paths } = SwaggerModule.createDocument(app, new DocumentBuilder().build());
    const plain = paths['/without/{id}']?.get;
    expect(paths[`/${pathOf(name)}/{id}`]?.get?.parameters).toEqual(plain?.parameters);
  });
});

describe('Messages, events and jobs that carry a token', () => {
  interface Order {
    readonly id: string;
    readonly fencingToken?: number | string;
  }
  interface Job {
    readonly data: Order;
  }
  const seen: string[] = [];

  @Controller()
  class Handlers {
    @MessagePattern('settle')
    @AcceptFencingToken('invoice:<data.id>', { from: (data: Order) => data.fencingToken })
    async settle(data: Order): Promise<object> {
      return Promise.resolve({ id: data.id, ...fencingHeaders() });
    }

    @AcceptFencingToken('invoice:<data.id>', { from: (_: TcpContext, data: Order) => data.fencingToken })
    @MessagePattern('settle-decorated')
    async decorated(@Ctx() _context: TcpContext, @Payload() data: Order): Promise<object> {
      return Promise.resolve({ id: data.id, ...fencingHeaders() });
    }

    @EventPattern('settled')
    @AcceptFencingToken(OrderKey, { from: (data: Order) => data.fencingToken })
    async settled(data: Order): Promise<void> {
      return Promise.resolve(void seen.push(`${data.id} ${fencingHeaders()['Fencing-Token']}`));
    }
  }

  @Injectable()
  class Worker {
    @AcceptFencingToken('invoice:<job.data.id>', { from: (job: Job) => job.data.fencingToken })
    async process(job: Job): Promise<string> {
      return Promise.resolve(`${job.data.id} ${fencingHeaders()['Fencing-Token']}`);
    }
  }

  it('are handled under it by microservices over TCP, and refused as they would be over HTTP', async () => {
    const module = await Test.createTestingModule({
      imports: [LockTesting.module()],
      controllers: [Handlers],
    }).compile();
    module.get(LockService).fences.add(new RememberingFence());
    const tcp = (port: number) =>
      ({ transport: Transport.TCP, options: { host: '127.0.0.1', port } }) as const;
    const app = module.createNestMicroservice<MicroserviceOptions>({ ...tcp(0), logger: false });
    await app.listen();
    const client = ClientProxyFactory.create(tcp((app.unwrap<Server>().address() as AddressInfo).port));
    const send = (pattern: string, data: object): Promise<unknown> =>
      lastValueFrom(client.send(pattern, data));

    for (const pattern of ['settle', 'settle-decorated']) {
      await expect(send(pattern, { id: '42', fencingToken: 41 })).resolves.toMatchObject({
        id: '42',
        'Fencing-Token': '41',
      });
    }
    await expect(send('settle', { id: '42', fencingToken: '42' })).resolves.toMatchObject({
      'Fencing-Token': '42',
    });
    await expect(send('settle', { id: '42', fencingToken: 40 })).rejects.toMatchObject({
      code: 'FENCED_OUT',
      outcome: 'not-started',
    });
    for (const [fencingToken, code] of [
      [undefined, 'FENCING_TOKEN_REQUIRED'],
      [null, 'FENCING_TOKEN_REQUIRED'],
      ['', 'FENCING_TOKEN_INVALID'],
      [[41], 'FENCING_TOKEN_INVALID'],
      [1.5, 'FENCING_TOKEN_INVALID'],
      [true, 'FENCING_TOKEN_INVALID'],
    ] as const) {
      await expect(send('settle', { id: '42', fencingToken })).rejects.toMatchObject({ code });
    }
    client.emit('settled', { id: '42', fencingToken: 39 }); // stale: dropped
    client.emit('settled', { id: '42', fencingToken: 43 });
    while (seen.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await client.close();
    await app.close();
    expect(seen).toEqual(['42 43']);
  });

  it('are handled under it by jobs, whoever calls them', async () => {
    const module = await Test.createTestingModule({
      imports: [LockTesting.module()],
      providers: [Worker, { provide: 'made', useFactory: () => new Worker() }],
    }).compile();
    for (const worker of [module.get(Worker), module.get<Worker>('made')]) {
      await expect(worker.process({ data: { id: '42', fencingToken: 41 } })).resolves.toBe('42 41');
      await expect(worker.process({ data: { id: '42' } })).rejects.toMatchObject({
        code: 'FENCING_TOKEN_REQUIRED',
      });
    }
    await module.close();
  });

  it('have to be told where their token is: without "from" the application does not start', async () => {
    @Controller()
    class Untold {
      @MessagePattern('settle')
      @AcceptFencingToken('invoice:<data.id>')
      async settle(data: Order): Promise<string> {
        return Promise.resolve(data.id);
      }
    }
    await expect(boot(Untold)).rejects.toThrow(
      /@AcceptFencingToken on Untold\.settle: it is no HTTP handler.*from:/,
    );
    @Controller()
    class WrongStore {
      @Post()
      @AcceptFencingToken('invoices', { store: 'nowhere' })
      async settle(): Promise<void> {}
    }
    await expect(boot(WrongStore)).rejects.toThrow(/WrongStore\.settle: There is no lock store "nowhere"/);
  });

  it('cannot be handled under it by what has no call of its own', () => {
    const decorate = (target: object, name: string): void => {
      const descriptor = Object.getOwnPropertyDescriptor(target, name);
      AcceptFencingToken('invoice:<id>')(target, name, descriptor as never);
    };
    class Odd {
      static async statically(id: string): Promise<string> {
        return Promise.resolve(id);
      }

      readonly property = 1;

      async *generated(id: string): AsyncGenerator<string> {
        yield await Promise.resolve(id);
      }

      async other(invoice: string): Promise<string> {
        return Promise.resolve(invoice);
      }
    }
    expect(() => decorate(Odd, 'statically')).toThrow(/write \{ from \}/);
    expect(() => decorate(Odd.prototype, 'property')).toThrow(/only a method can take a token/);
    expect(() => decorate(Odd.prototype, 'generated')).toThrow(/async generator/);
    expect(() => decorate(Odd.prototype, 'other')).toThrow(
      /@AcceptFencingToken on Odd\.other: .*names <id>.*<invoice>/,
    );
  });
});

describe('fencingHeaders() and LockContext', () => {
  const context = new LockContext();
  let locks: LockService;
  beforeEach(() => {
    locks = LockTesting.install();
  });
  afterEach(() => LockTesting.uninstall());

  it('give the token of the lock that is held', async () => {
    await locks.withLock('invoice:42', (lease) => {
      const headers = { 'Fencing-Token': String(lease.token) };
      expect([fencingHeaders(), fencingHeaders('invoice:42'), fencingHeaders(InvoiceKey)]).toEqual([
        headers,
        headers,
        headers,
      ]);
    });
  });

  it('give nothing where nothing is held, nor once the lock is lost: the call must not be made', async () => {
    expect(() => fencingHeaders()).toThrow(expect.objectContaining({ code: 'LOCK_NOT_HELD' }));
    expect(() => fencingHeaders('invoice:42')).toThrow(expect.objectContaining({ code: 'LOCK_NOT_HELD' }));
    const late = locks.withLock('invoice:42', async () => {
      await LockTesting.lose('invoice:42');
      return fencingHeaders();
    });
    await expect(late).rejects.toMatchObject({ code: 'LEASE_LOST' });
  });

  it('want the key named where several tokens are there, held or handed over', async () => {
    await locks.withLock('audit', (audit) =>
      withExpectedLockToken({ 'invoice:42': 41 }, () => {
        expect(() => fencingHeaders()).toThrow(
          /Several locks are held here \("audit", "invoice:42"\).*fencingHeaders\(key\)/,
        );
        expect(() => context.token).toThrow(/tokenFor\(key\)/);
        expect(fencingHeaders(InvoiceKey)).toEqual({ 'Fencing-Token': '41' });
        expect([context.tokenFor('audit'), context.tokenFor(InvoiceKey({ id: 42 }))]).toEqual([
          audit.token,
          41,
        ]);
      }),
    );
  });

  it('hand on what was handed over, which is no hold', async () => {
    await withExpectedLockToken({ 'invoice:42': 41 }, () => {
      expect(fencingHeaders()).toEqual({ 'Fencing-Token': '41' });
      expect(context.lease()).toBeUndefined();
      expect(() => context.signal).toThrow(expect.objectContaining({ code: 'LOCK_NOT_HELD' }));
      expect(() => context.assertHeld()).toThrow(expect.objectContaining({ code: 'LOCK_NOT_HELD' }));
    });
  });

  it('send neither where the hold and what was handed over do not agree', async () => {
    await locks.withLock('invoice:42', (lease) =>
      withExpectedLockToken({ 'invoice:42': lease.token - 1 }, () => {
        expect(() => fencingHeaders()).toThrow(expect.objectContaining({ code: 'FENCED_OUT' }));
      }),
    );
  });

  it('hand on along a chain of services: A calls B, and B calls C', async () => {
    @Controller('chain/:id')
    class Chain {
      @Post(':next')
      @AcceptFencingToken('invoice:<id>')
      async forward(@Param('id') id: string, @Param('next') next: string): Promise<unknown> {
        if (next === '0') return fencingHeaders();
        const { port } = serverOf(app).address() as AddressInfo;
        const answer = await fetch(`http://127.0.0.1:${port}/chain/${id}/${Number(next) - 1}`, {
          method: 'POST',
          headers: fencingHeaders(),
        });
        return answer.json();
      }
    }
    const { app } = await boot(Chain);
    await app.listen(0, '127.0.0.1');
    await request(serverOf(app))
      .post('/chain/42/2')
      .set('Fencing-Token', '41')
      .expect(201, { 'Fencing-Token': '41' });
    await app.close();
  });
});

async function raw(port: number, text: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.end(text);
  let answer = '';
  for await (const chunk of socket) answer += String(chunk);
  return answer;
}

function codeOrValue(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return (error as { code?: string }).code;
  }
}
