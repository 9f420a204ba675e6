import {
  BadRequestException,
  Catch,
  ConflictException,
  Controller,
  GoneException,
  HttpException,
  NotFoundException,
  Post,
  Res,
  UnprocessableEntityException,
  UseFilters,
  type ArgumentsHost,
  type ExceptionFilter,
} from '@nestjs/common';
import { Idempotent, IdempotencyInProgressError, toHttpException } from 'nestjs-distributed-lock';

import { Calls, describeOnEachAdapter, expectReplay, type AnyResponse } from './nest-http-adapters.js';

class Declined extends HttpException {
  constructor(readonly reason: string) {
    super({ error: 'declined' }, 402);
  }
}

class Unregistered extends HttpException {
  constructor(readonly reason: string) {
    super({ error: 'declined' }, 402);
  }
}

class NoSuchInvoice extends NotFoundException {}

function answer(host: ArgumentsHost, status: number, body: object): void {
  const response = host.switchToHttp().getResponse<AnyResponse>();
  response.status(status).header('Content-Type', 'application/json').send(JSON.stringify(body));
}

@Catch(Declined)
class TellsReason implements ExceptionFilter<Declined> {
  catch(declined: Declined, host: ArgumentsHost): void {
    answer(host, declined.getStatus(), { reason: declined.reason });
  }
}

@Catch(NotFoundException)
class TellsNothing implements ExceptionFilter {
  catch(error: NotFoundException, host: ArgumentsHost): void {
    answer(host, 404, { found: false, message: error.message });
  }
}

@Controller('payments')
class Payments {
  constructor(private readonly calls: Calls) {}

  @Post()
  @Idempotent()
  async pay(@Res({ passthrough: true }) response: AnyResponse): Promise<object> {
    response.header('Link', '</help>; rel="help"').header('Set-Cookie', 'a=1');
    return this.calls.run((run) => ({ run }));
  }

  @Post('filtered')
  @UseFilters(TellsReason, TellsNothing)
  @Idempotent({ classes: { Declined: { type: Declined } } })
  async filtered(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Post('every')
  @Idempotent({
    finalErrors: {
      describe: (error) => (error as Error).message,
      revive: (kept) => new HttpException({ kept }, 418),
    },
  })
  async every(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }
}

const inProgress = new IdempotencyInProgressError('busy', { retryAfterMs: 1 });
const key = 'k1';

describeOnEachAdapter('a handler that throws', { controllers: [Payments] }, (app) => {
  const fail = async (error: Error, path = '/payments') => {
    app().calls.failWith = error;
    const first = await app().send(path, { key });
    app().calls.failWith = undefined;
    return [first, await app().send(path, { key })] as const;
  };

  it.each([
    ['402', new HttpException({ reason: 'declined' }, 402)],
    ['404', new NotFoundException('no such invoice')],
    ['409', new ConflictException({ code: 'PAID' })],
    ['410', new GoneException()],
    ['422', new UnprocessableEntityException(['amount', 'currency'])],
    ['402 of a class of its own', new Unregistered('no money')],
    ['402 with a text', new HttpException('declined', 402)],
    ['404 made of another error', new NotFoundException(new Error('secret'))],
  ])('C088: %s is a decision, and given again with its marks', async (_what, error) => {
    const [first, second] = await fail(error);
    expect(first).toMatchObject({ status: error.getStatus(), headers: { 'idempotency-status': 'created' } });
    expect(second).toMatchObject({ status: first.status, text: first.text });
    expect(second.headers).toMatchObject({
      'content-type': first.headers['content-type'],
      'cache-control': 'no-store',
      link: '</help>; rel="help"',
    });
    expect(second.headers).not.toHaveProperty('set-cookie');
    expectReplay(second);
    expect(second.text).not.toContain('secret');
    expect(app().calls.count).toBe(1);
  });

  it.each([
    ['400', new BadRequestException()],
    ['401', new HttpException('', 401)],
    ['403', new HttpException('', 403)],
    ['429', new HttpException('', 429)],
    ['500', new HttpException('', 500)],
    ['502', new HttpException('', 502)],
    ['a mistake', new TypeError('a mistake')],
    ['409 of what is at work elsewhere', toHttpException(inProgress) as HttpException],
  ])('C088: %s decides nothing, and the next request runs', async (_what, error) => {
    const [first, second] = await fail(error);
    expect(first.headers).not.toHaveProperty('idempotency-status');
    expect(second).toMatchObject({ status: 201, text: '{"run":2}' });
    expect(second.headers).not.toHaveProperty('idempotent-replayed');
  });

  it.each([
    ['a registered class, with what it holds', new Declined('no money'), 402, '{"reason":"no money"}'],
    ['Nest itself', new NotFoundException('gone'), 404, '{"found":false,"message":"gone"}'],
    ['a class that extends one of Nest', new NoSuchInvoice('7'), 404, '{"found":false,"message":"7"}'],
  ])('gives filters an exception of %s again', async (_what, error, status, text) => {
    const [first, second] = await fail(error, '/payments/filtered');
    expect(first).toMatchObject({ status, text });
    expect(second).toMatchObject({ status, text });
    expectReplay(second);
    expect(app().calls.count).toBe(1);
  });

  it('is asked which errors are decisions, where "finalErrors" is written', async () => {
    const [first, second] = await fail(new Error('timed out'), '/payments/every');
    expect(first).toMatchObject({ status: 500 });
    expect(second).toMatchObject({ status: 418, text: '{"kept":"timed out"}' });
    expect(app().calls.count).toBe(1);
  });
});
