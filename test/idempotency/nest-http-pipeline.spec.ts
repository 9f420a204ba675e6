import {
  BadRequestException,
  Body,
  Controller,
  Injectable,
  Param,
  ParseIntPipe,
  Post,
  UseGuards,
  UseInterceptors,
  UsePipes,
  type CallHandler,
  type CanActivate,
  type ExecutionContext,
  type NestInterceptor,
  type PipeTransform,
} from '@nestjs/common';
import { Idempotent, IdempotencyService, type RecordView } from 'nestjs-distributed-lock';
import { map, mergeMap, of, throwError, type Observable } from 'rxjs';

import { Calls, describeOnEachAdapter, expectReplay, type AnyResponse } from './nest-http-adapters.js';

/** What stands around the handlers, and how it behaves in this test. */
@Injectable()
class Around {
  letsIn = true;
  answersItself = false;
  failsAfterwards = false;
  turns = 0;
}

@Injectable()
class Door implements CanActivate {
  constructor(private readonly around: Around) {}

  canActivate(): boolean {
    return this.around.letsIn;
  }
}

@Injectable()
class Envelope implements NestInterceptor {
  constructor(private readonly around: Around) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const turn = (this.around.turns += 1);
    if (this.around.answersItself) return of({ from: 'interceptor' });
    const response = context.switchToHttp().getResponse<AnyResponse>();
    const seal = map((data: unknown) => {
      response.header('X-Turn', String(turn)).header('ETag', `"${turn}"`);
      return { data, turn };
    });
    const fail = mergeMap(() => throwError(() => new BadRequestException('not for you')));
    return next.handle().pipe(this.around.failsAfterwards ? fail : seal);
  }
}

/** As pipes of schema libraries are written: it takes every argument for a body. */
class Schema implements PipeTransform {
  transform(value: { amount?: unknown } | null): object {
    if (typeof value?.amount !== 'number') throw new BadRequestException('amount is no number');
    return { amount: value.amount };
  }
}

@Controller('payments')
class Payments {
  constructor(private readonly calls: Calls) {}

  @Post('guarded')
  @UseGuards(Door)
  @Idempotent({ scope: 'global' })
  async guarded(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Post('number/:nr')
  @Idempotent()
  async number(@Param('nr', ParseIntPipe) nr: number): Promise<object> {
    return this.calls.run({ nr });
  }

  @Post('schema')
  @UsePipes(new Schema())
  @Idempotent()
  async schema(@Body() body: { amount: number }): Promise<object> {
    return this.calls.run({ paid: body.amount });
  }

  @Post('enveloped')
  @UseInterceptors(Envelope)
  @Idempotent()
  async enveloped(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }
}

const parts = { controllers: [Payments], providers: [Around, Door, Envelope] };

describeOnEachAdapter('what stands around a handler with @Idempotent()', parts, (app) => {
  const around = (): Around => app().nest.get(Around);
  const key = 'k1';
  const record = (path: string): Promise<RecordView | null> =>
    app()
      .nest.get(IdempotencyService)
      .inspect({ key, operation: `POST /payments/${path}` });

  it('keeps nothing of a request that a guard refuses', async () => {
    around().letsIn = false;
    expect(await app().send('/payments/guarded', { key })).toMatchObject({ status: 403 });
    await expect(record('guarded')).resolves.toBeNull();
    around().letsIn = true;
    expect(await app().send('/payments/guarded', { key })).toMatchObject({ status: 201, text: '{"run":1}' });
    await expect(record('guarded')).resolves.toMatchObject({ attempt: 1 });
  });

  it('has the guard decide before anything is given again', async () => {
    await app().send('/payments/guarded', { key });
    around().letsIn = false;
    const refused = await app().send('/payments/guarded', { key });
    expect(refused).toMatchObject({ status: 403 });
    expect(refused.headers).not.toHaveProperty('idempotent-replayed');
    expect(app().calls.count).toBe(1);
  });

  it('keeps nothing of a request that a pipe refuses', async () => {
    expect(await app().send('/payments/number/x', { key })).toMatchObject({ status: 400 });
    await expect(record('number/:nr')).resolves.toBeNull();
    expect(await app().send('/payments/number/7', { key })).toMatchObject({ status: 201, text: '{"nr":7}' });
  });

  it('lets a pipe of the whole handler see its own arguments only', async () => {
    const [first, second] = await app().twice('/payments/schema', { key, body: { amount: 5, more: 1 } });
    expect(first).toMatchObject({ status: 201, text: '{"paid":5}' });
    expect(second).toMatchObject({ status: 201, text: '{"paid":5}' });
    expectReplay(second);
  });

  it('compares what was sent, not what pipes made of it', async () => {
    await app().send('/payments/schema', { key, body: { amount: 5, more: 1 } });
    expect(await app().send('/payments/schema', { key, body: { amount: 5, more: 2 } })).toMatchObject({
      status: 422,
    });
  });

  it('runs interceptors for both answers, each of which sets its own headers', async () => {
    const [first, second] = await app().twice('/payments/enveloped', { key });
    expect(first).toMatchObject({ text: '{"data":{"run":1},"turn":1}', headers: { 'x-turn': '1' } });
    expect(second).toMatchObject({
      text: '{"data":{"run":1},"turn":2}',
      headers: { 'x-turn': '2', etag: '"2"' },
    });
    expectReplay(second);
    expect(app().calls.count).toBe(1);
  });

  it('keeps nothing of a request that an interceptor answers', async () => {
    around().answersItself = true;
    expect(await app().send('/payments/enveloped', { key })).toMatchObject({
      text: '{"from":"interceptor"}',
    });
    await expect(record('enveloped')).resolves.toBeNull();
  });

  it('gives the answer of the handler again after an interceptor has failed behind it', async () => {
    around().failsAfterwards = true;
    expect(await app().send('/payments/enveloped', { key })).toMatchObject({ status: 400 });
    around().failsAfterwards = false;
    const again = await app().send('/payments/enveloped', { key });
    expect(again).toMatchObject({ status: 201, text: '{"data":{"run":1},"turn":2}' });
    expectReplay(again);
    expect(app().calls.count).toBe(1);
  });
});
