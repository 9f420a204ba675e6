import {
  All,
  Controller,
  Delete,
  Get,
  Inject,
  Param,
  Patch,
  Post,
  Put,
  Scope,
  Version,
  VersioningType,
  type INestApplication,
} from '@nestjs/common';
import { REQUEST } from '@nestjs/core';
import { Idempotent, IdempotencyService, type RecordView } from 'nestjs-distributed-lock';

import { Calls, describeOnEachAdapter, expectReplay, type Answer } from './nest-http-adapters.js';

@Controller('invoices')
class Invoices {
  constructor(private readonly calls: Calls) {}

  @Post(':id/pay')
  @Idempotent()
  async pay(@Param('id') id: string): Promise<object> {
    return this.calls.run((run) => ({ id, run }));
  }

  @Post(':id/refund')
  @Idempotent()
  async refund(@Param('id') id: string): Promise<object> {
    return this.calls.run((run) => ({ id, run }));
  }

  @Post(['', 'also'])
  @Idempotent()
  async create(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Post(':id/named')
  @Idempotent({ name: 'invoices.named' })
  async named(@Param('id') id: string): Promise<object> {
    return this.calls.run((run) => ({ id, run }));
  }

  @Put(':id')
  @Idempotent()
  async put(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Patch(':id')
  @Idempotent()
  async patch(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Delete(':id')
  @Idempotent()
  async delete(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Get(':id')
  @Idempotent()
  async get(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @All(':id/any')
  @Idempotent()
  async any(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }
}

/** One object for each request. */
@Controller({ path: 'scoped', scope: Scope.REQUEST })
class ScopedInvoices {
  constructor(
    private readonly calls: Calls,
    @Inject(REQUEST) private readonly request: { headers: Record<string, string> },
  ) {}

  @Post()
  @Idempotent()
  async pay(): Promise<object> {
    return this.calls.run((run) => ({ run, trace: this.request.headers['x-trace'] }));
  }
}

@Controller('versioned')
class Versioned {
  constructor(private readonly calls: Calls) {}

  @Post()
  @Version('1')
  @Idempotent()
  async one(): Promise<object> {
    return this.calls.run((run) => ({ run, version: 1 }));
  }

  @Post()
  @Version('2')
  @Idempotent()
  async two(): Promise<object> {
    return this.calls.run((run) => ({ run, version: 2 }));
  }
}

const key = 'k1';

describeOnEachAdapter('one key on several routes', { controllers: [Invoices, ScopedInvoices] }, (app) => {
  const runOf = ({ text }: Answer): unknown => (JSON.parse(text) as { run: number }).run;
  const recordOf = (operation: string): Promise<RecordView | null> =>
    app().nest.get(IdempotencyService).inspect({ key, operation });

  it('is one operation for each route: none gets the answer of another', async () => {
    expect(runOf(await app().send('/invoices/1/pay', { key }))).toBe(1);
    expect(runOf(await app().send('/invoices/1/refund', { key }))).toBe(2);
    expect(runOf(await app().send('/invoices', { key }))).toBe(3);
    expect(runOf(await app().send('/invoices/also', { key }))).toBe(4);
    expect(runOf(await app().send('/invoices/1/refund', { key }))).toBe(2);
  });

  it.each(['PUT', 'PATCH', 'DELETE', 'GET'])('is given again for %s', async (method) => {
    const [first, second] = await app().twice('/invoices/1', { method, key });
    expect(first).toMatchObject({ status: 200, text: '{"run":1}' });
    expect(second).toMatchObject({ status: 200, text: '{"run":1}' });
    expectReplay(second);
    await expect(recordOf(`${method} /invoices/:id`)).resolves.toMatchObject({ attempt: 1 });
  });

  it('is another operation for another method of HTTP', async () => {
    for (const [index, method] of ['PUT', 'PATCH', 'DELETE', 'GET', 'HEAD'].entries()) {
      await app().send('/invoices/1', { method, key });
      expect(app().calls.count).toBe(index + 1);
    }
    await app().send('/invoices/1/any', { method: 'POST', key });
    expect(runOf(await app().send('/invoices/1/any', { method: 'PUT', key }))).toBe(7);
  });

  it('is given again for HEAD, which has no body', async () => {
    const [first, second] = await app().twice('/invoices/1', { method: 'HEAD', key });
    expect(first).toMatchObject({ status: 200, text: '' });
    expect(second).toMatchObject({ status: 200, text: '' });
    expect(second.headers['content-length']).toBe(first.headers['content-length']);
    expectReplay(second);
    expect(app().calls.count).toBe(1);
  });

  it('is recorded by method and route, or by the name that is written', async () => {
    await app().send('/invoices/1/pay', { key });
    await expect(recordOf('POST /invoices/:id/pay')).resolves.toMatchObject({ attempt: 1 });
    await app().send('/invoices/1/named', { key });
    await expect(recordOf('invoices.named')).resolves.toMatchObject({ attempt: 1 });
  });

  it('is given again by controllers that are made for each request', async () => {
    const first = await app().send('/scoped', { key, headers: { 'X-Trace': 'a' } });
    const second = await app().send('/scoped', { key, headers: { 'X-Trace': 'b' } });
    expect([first.text, second.text]).toEqual(['{"run":1,"trace":"a"}', '{"run":1,"trace":"a"}']);
    expectReplay(second);
    expect((await app().send('/scoped', { key: 'k2', headers: { 'X-Trace': 'c' } })).text).toContain('"c"');
  });
});

describeOnEachAdapter(
  'routes with a prefix and versions in their path',
  {
    controllers: [Invoices, Versioned],
    configure: (app: INestApplication) =>
      app.setGlobalPrefix('api').enableVersioning({ type: VersioningType.URI, defaultVersion: '1' }),
  },
  (app) => {
    it('are recorded as they are', async () => {
      await app().send('/api/v1/invoices/1/pay', { key });
      const records = app().nest.get(IdempotencyService);
      const operation = 'POST /api/v1/invoices/:id/pay';
      await expect(records.inspect({ key, operation })).resolves.toMatchObject({ attempt: 1 });
    });

    it('are an operation for each version', async () => {
      expect((await app().send('/api/v1/versioned', { key })).text).toBe('{"run":1,"version":1}');
      expect((await app().send('/api/v2/versioned', { key })).text).toBe('{"run":2,"version":2}');
      expectReplay(await app().send('/api/v1/versioned', { key }));
    });
  },
);

describeOnEachAdapter(
  'a route with versions in a header',
  {
    controllers: [Versioned],
    configure: (app: INestApplication) =>
      app.enableVersioning({ type: VersioningType.HEADER, header: 'X-Version' }),
  },
  (app) => {
    it('is one operation, which another version does not carry out once more', async () => {
      const send = (version: string): Promise<Answer> =>
        app().send('/versioned', { key, headers: { 'X-Version': version } });
      expect((await send('1')).text).toBe('{"run":1,"version":1}');
      const second = await send('2');
      expect(second.text).toBe('{"run":1,"version":1}');
      expectReplay(second);
    });
  },
);
