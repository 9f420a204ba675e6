import { Body, Controller, Header, HttpCode, Post, Redirect, Req, Res } from '@nestjs/common';
import { Idempotent } from 'nestjs-distributed-lock';

import { Calls, describeOnEachAdapter, expectReplay, type AnyResponse } from './nest-http-adapters.js';

@Controller('answers')
class Answers {
  constructor(private readonly calls: Calls) {}

  @Post('object')
  @Idempotent()
  async object(): Promise<object> {
    return this.calls.run((run) => ({ run, missing: undefined, none: null, list: [1, { a: null }] }));
  }

  @Post('text')
  @Idempotent()
  async text(): Promise<string> {
    return this.calls.run((run) => `run ${run}: schön`);
  }

  @Post('number')
  @Idempotent()
  async number(): Promise<number> {
    return this.calls.run((run) => run);
  }

  @Post('false')
  @Idempotent()
  async no(): Promise<boolean> {
    return this.calls.run(false);
  }

  @Post('null')
  @Idempotent()
  async null(): Promise<null> {
    return this.calls.run(null);
  }

  @Post('void')
  @Idempotent()
  async void(): Promise<void> {
    await this.calls.run(undefined);
  }

  @Post('date')
  @Idempotent()
  async date(): Promise<object> {
    return this.calls.run({ at: new Date(0), list: [new Date(1)] });
  }

  @Post('bytes')
  @Header('Content-Type', 'application/pdf')
  @Idempotent()
  async bytes(): Promise<Buffer> {
    return this.calls.run(Buffer.from([0, 255, 128, 10]));
  }

  @Post('echo')
  @Idempotent()
  async echo(@Body() body: unknown): Promise<unknown> {
    return this.calls.run(body);
  }

  @Post('empty')
  @HttpCode(204)
  @Idempotent()
  async empty(): Promise<void> {
    await this.calls.run(undefined);
  }

  @Idempotent()
  @HttpCode(200)
  @Post('ok')
  async ok(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Post('away')
  @Redirect('/elsewhere', 302)
  @Idempotent()
  async away(): Promise<object> {
    return this.calls.run((run) => ({ url: `/receipts/${run}`, statusCode: 303 }));
  }

  @Post('elsewhere')
  @Redirect('/elsewhere', 307)
  @Idempotent()
  async elsewhere(): Promise<void> {
    await this.calls.run(undefined);
  }

  @Post('csv')
  @Header('Content-Type', 'text/csv')
  @Header('Cache-Control', 'private, max-age=60')
  @Idempotent()
  async csv(): Promise<string> {
    return this.calls.run((run) => `run\n${run}\n`);
  }

  @Post('headers')
  @Idempotent()
  async headers(@Res({ passthrough: true }) response: AnyResponse): Promise<object> {
    return this.calls.run((run) => {
      const own = response.status(202).header('Location', `/jobs/${run}`).header('ETag', `"v${run}"`);
      own
        .header('Link', ['</jobs>; rel="up"', `</jobs/${run}>; rel="self"`])
        .header('Content-Language', 'de')
        .header('Content-Encoding', 'identity')
        .header('Content-Location', `/jobs/${run}`)
        .header('Content-Disposition', `attachment; filename="${run}.json"`)
        .header('Last-Modified', 'Thu, 01 Jan 1970 00:00:00 GMT')
        .header('Set-Cookie', [`session=${run}`, 'other=1'])
        .header('X-Request-Id', String(run))
        .header('X-RateLimit-Remaining', '9');
      return { run };
    });
  }

  @Post('by-request')
  @Idempotent()
  async byRequest(@Req() message: { headers: Record<string, string> }): Promise<object> {
    return this.calls.run({ agent: message.headers['user-agent'] });
  }
}

const key = 'k1';

describeOnEachAdapter('C122: the answer that is given again', { controllers: [Answers] }, (app, adapter) => {
  it.each([
    ['object', 201, '{"run":1,"none":null,"list":[1,{"a":null}]}'],
    ['text', 201, 'run 1: schön'],
    ['number', 201, '1'],
    ['false', 201, 'false'],
    ['void', 201, ''],
    ['date', 201, '{"at":"1970-01-01T00:00:00.000Z","list":["1970-01-01T00:00:00.001Z"]}'],
    ['empty', 204, ''],
    ['ok', 200, '{"run":1}'],
    ['csv', 201, 'run\n1\n'],
  ])('is %s with status %i', async (path, status, text) => {
    const [first, second] = await app().twice(`/answers/${path}`, { key });
    expect(first).toMatchObject({ status, text, headers: { 'idempotency-status': 'created' } });
    expect(first.headers).not.toHaveProperty('idempotent-replayed');
    expect(second).toMatchObject({ status, text });
    expect(second.headers['content-type']).toBe(first.headers['content-type']);
    expectReplay(second);
    expect(app().calls.count).toBe(1);
  });

  it.each(['null', 'bytes'])('is %s, as this adapter writes it', async (path) => {
    const [first, second] = await app().twice(`/answers/${path}`, { key });
    expect(second.bytes).toEqual(first.bytes);
    expect(second.headers['content-type']).toBe(first.headers['content-type']);
    expectReplay(second);
    if (path === 'bytes' && adapter === 'Fastify')
      expect(second.bytes).toEqual(Buffer.from([0, 255, 128, 10]));
    expect(app().calls.count).toBe(1);
  });

  it.each([
    ['JSON', 'application/json', '{"a":{"b":[1]},"c":"x"}'],
    ['a form', 'application/x-www-form-urlencoded', 'a=1&c=x'],
  ])('is a part of the request that was sent as %s', async (_what, type, body) => {
    const headers = { 'Content-Type': type, 'Content-Length': String(body.length) };
    const raw = ['POST /answers/echo HTTP/1.1', 'Host: x', 'Idempotency-Key: k1', 'Connection: close'];
    const lines = [...raw, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`), '', body];
    const [first, second] = [await app().sendRaw(lines), await app().sendRaw(lines)];
    expect(first).toMatch(/^HTTP\/1\.1 201 [^]*"c":"x"\}/);
    expect(second).toMatch(/^HTTP\/1\.1 201 [^]*"c":"x"\}/);
    expect(app().calls.count).toBe(1);
  });

  it.each([
    ['away', 303, '/receipts/1'],
    ['elsewhere', 307, '/elsewhere'],
  ])('is a redirect: %s', async (path, status, location) => {
    const [first, second] = await app().twice(`/answers/${path}`, { key });
    expect(first).toMatchObject({ status, headers: { location } });
    expect(second).toMatchObject({ status, headers: { location } });
    expectReplay(second);
    expect(app().calls.count).toBe(1);
  });

  it('has the headers that describe it, and the status that the handler has set', async () => {
    const [, { status, headers, text }] = await app().twice('/answers/headers', { key });
    expect({ status, text }).toEqual({ status: 202, text: '{"run":1}' });
    expect(headers).toMatchObject({
      location: '/jobs/1',
      etag: '"v1"',
      link: '</jobs>; rel="up", </jobs/1>; rel="self"',
      'content-language': 'de',
      'content-encoding': 'identity',
      'content-location': '/jobs/1',
      'content-disposition': 'attachment; filename="1.json"',
      'last-modified': 'Thu, 01 Jan 1970 00:00:00 GMT',
    });
  });

  it('has no cookie, and nothing else that belongs to one exchange', async () => {
    const [first, { headers }] = await app().twice('/answers/headers', { key });
    expect(first.headers).toMatchObject({ 'set-cookie': ['session=1', 'other=1'], 'x-request-id': '1' });
    for (const name of ['set-cookie', 'x-request-id', 'x-ratelimit-remaining'])
      expect(headers).not.toHaveProperty(name);
  });

  it('is for no cache, unless the handler has said how long it holds', async () => {
    const [, plain] = await app().twice('/answers/ok', { key });
    expect(plain.headers['cache-control']).toBe('no-store');
    const [, csv] = await app().twice('/answers/csv', { key });
    expect(csv.headers['cache-control']).toBe('private, max-age=60');
  });

  it('is told by the server alone: what a client sends in its place changes nothing', async () => {
    const forged = { 'Idempotent-Replayed': 'true', 'Idempotency-Status': 'replayed', 'X-Hit': '1' };
    const first = await app().send('/answers/ok', { key, headers: forged });
    expect(first).toMatchObject({ status: 200, headers: { 'idempotency-status': 'created' } });
    expect(first.headers).not.toHaveProperty('idempotent-replayed');
    expect(app().calls.count).toBe(1);
  });

  it('is the first one, whatever else of the request has changed', async () => {
    await app().send('/answers/by-request', { key, headers: { 'User-Agent': 'a' } });
    const second = await app().send('/answers/by-request', { key, headers: { 'User-Agent': 'b' } });
    expect(second.text).toBe('{"agent":"a"}');
  });
});
