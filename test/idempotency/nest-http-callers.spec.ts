import {
  Controller,
  Injectable,
  Param,
  Post,
  Req,
  type CanActivate,
  type ExecutionContext,
  type INestApplication,
} from '@nestjs/common';
import { APP_GUARD } from '@nestjs/core';
import type { FastifyInstance } from 'fastify';
import { Idempotent, memoryIdempotencyStore } from 'nestjs-distributed-lock';

import { Calls, describeOnEachAdapter, expectReplay, type Answer } from './nest-http-adapters.js';

interface Message {
  readonly headers: Readonly<Record<string, string>>;
  user?: unknown;
}

/** As a guard of passport leaves it: `X-User` is what stands in the token. */
@Injectable()
class SignedIn implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const message = context.switchToHttp().getRequest<Message>();
    const token = message.headers['x-user'];
    if (token) message.user = JSON.parse(token);
    return true;
  }
}

/** For all handlers that say nothing themselves. */
const caller = ({ user }: { user?: { name?: string } }): string | undefined => user?.name;

@Controller('payments')
class Payments {
  constructor(private readonly calls: Calls) {}

  @Post()
  @Idempotent()
  async pay(@Req() message: Message): Promise<object> {
    return this.calls.run((run) => ({ run, user: message.user }));
  }

  @Post('own')
  @Idempotent({ scope: (message: Message) => message.headers['x-tenant'] })
  async own(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Post('number')
  @Idempotent({ scope: (message: Message) => Number(message.headers['x-tenant']) as never })
  async number(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Post('everybody')
  @Idempotent({ scope: 'global' })
  async everybody(): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }

  @Post('named/:id')
  @Idempotent('payout:<0>', { scope: (id: string) => `owner-of-${id}` })
  async named(@Param('id') _id: string): Promise<object> {
    return this.calls.run((run) => ({ run }));
  }
}

const key = 'k1';
const asUser = (user: unknown): object => ({ headers: { 'X-User': JSON.stringify(user) } });

describeOnEachAdapter(
  'two callers with one key',
  {
    controllers: [Payments],
    providers: [{ provide: APP_GUARD, useClass: SignedIn }],
    idempotency: { store: () => memoryIdempotencyStore(), caller: caller },
  },
  (app) => {
    it('never get the answer of each other', async () => {
      const first = await app().send('/payments', { key, ...asUser({ name: 'a' }) });
      const other = await app().send('/payments', { key, ...asUser({ name: 'b' }) });
      expect(other).toMatchObject({ status: 201, text: '{"run":2,"user":{"name":"b"}}' });
      expect(other.headers).not.toHaveProperty('idempotent-replayed');
      const again = await app().send('/payments', { key, ...asUser({ name: 'a' }) });
      expect(again.text).toBe(first.text);
      expectReplay(again);
    });

    it('are kept apart by what the handler itself says', async () => {
      const sendAs = (tenant: string): Promise<Answer> =>
        app().send('/payments/own', { key, headers: { 'X-Tenant': tenant } });
      expect([(await sendAs('a')).text, (await sendAs('b')).text, (await sendAs('a')).text]).toEqual([
        '{"run":1}',
        '{"run":2}',
        '{"run":1}',
      ]);
    });

    it.each([
      ['nobody', '/payments', {}],
      ['somebody without a name', '/payments', asUser({ name: '' })],
      ['nobody, by the handler', '/payments/own', {}],
      ['what is no number', '/payments/number', {}],
    ])('are refused when they are %s: what they share is no name', async (_what, path, sent) => {
      expect(await app().send(path, { key, ...sent })).toMatchObject({
        status: 500,
        text: expect.stringContaining('LOCK_CONFIG_INVALID'),
      });
      expect(app().calls.count).toBe(0);
    });

    it('share one answer where the handler says so', async () => {
      await app().send('/payments/everybody', { key, ...asUser({ name: 'a' }) });
      expectReplay(await app().send('/payments/everybody', { key, ...asUser({ name: 'b' }) }));
    });

    it('share one answer where the key is written, and needs no header', async () => {
      await app().send('/payments/named/1', asUser({ name: 'a' }));
      expectReplay(await app().send('/payments/named/1', asUser({ name: 'b' })));
      expect(await app().send('/payments/named/2')).toMatchObject({ text: '{"run":2}' });
    });
  },
);

describeOnEachAdapter('a caller whom nothing names', { controllers: [Payments] }, (app) => {
  it('may use a key where nobody signs in', async () => {
    expectReplay((await app().twice('/payments', { key }))[1]);
  });

  it.each(['Authorization', 'Cookie'])('is refused with %s, which says that somebody has', async (name) => {
    expect(await app().send('/payments', { key, headers: { [name]: 'x' } })).toMatchObject({ status: 500 });
    expect(app().calls.count).toBe(0);
  });
});

/** As session middleware, or a hook of Fastify, does: before guards, which need not be there. */
function signInBefore(app: INestApplication): void {
  const signIn = (message: Message): void => {
    const token = message.headers['x-user'];
    if (token) message.user = JSON.parse(token);
  };
  const instance = app.getHttpAdapter().getInstance() as Partial<FastifyInstance>;
  const passOn = (message: unknown, _response: unknown, next: () => void): void => {
    signIn(message as Message);
    next();
  };
  if (instance.addHook) instance.addHook('preHandler', passOn);
  else app.use(passOn);
}

describeOnEachAdapter(
  'a user whom no guard has let in',
  { controllers: [Payments], configure: signInBefore },
  (app) => {
    it.each([
      ['id', { id: 'a' }, { id: 'b' }],
      ['number', { id: 1 }, { id: 2 }],
      ['sub', { sub: 'a' }, { sub: 'b' }],
    ])('is known by its %s', async (_what, one, other) => {
      await app().send('/payments', { key, ...asUser(one) });
      expect((await app().send('/payments', { key, ...asUser(other) })).text).toMatch(/^\{"run":2/);
      expectReplay(await app().send('/payments', { key, ...asUser(one) }));
    });

    it.each([[{}], [{ id: '' }], [{ id: null }], [{ id: {} }], ['a']])(
      'is refused as %j, which names nobody',
      async (user) => {
        expect(await app().send('/payments', { key, ...asUser(user) })).toMatchObject({ status: 500 });
        expect(app().calls.count).toBe(0);
      },
    );
  },
);
