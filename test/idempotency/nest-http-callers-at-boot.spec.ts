import { Controller, Get, Injectable, Param, Post, UseGuards, type CanActivate } from '@nestjs/common';
import { APP_GUARD } from '@nestjs/core';
import { Idempotent, memoryIdempotencyStore } from 'nestjs-distributed-lock';

import { refusalAtBoot, type AppParts } from './nest-http-adapters.js';

@Injectable()
class SignedIn implements CanActivate {
  canActivate(): boolean {
    return true;
  }
}

@Controller()
class Guarded {
  @UseGuards(SignedIn)
  @Post()
  @Idempotent()
  async run(): Promise<void> {}
}

@UseGuards(SignedIn)
@Controller()
class AllGuarded {
  @Post()
  @Idempotent()
  async run(): Promise<void> {}
}

@Controller()
class Open {
  @Post()
  @Idempotent()
  async run(): Promise<void> {}
}

@UseGuards(SignedIn)
@Controller()
class Scoped {
  @Post('a')
  @Idempotent({ scope: 'global' })
  async run(): Promise<void> {}

  @Get('b/:id')
  @Idempotent('b:<id>')
  async named(@Param('id') id: string): Promise<string> {
    return Promise.resolve(id);
  }
}

const guardOfAll = { provide: APP_GUARD, useClass: SignedIn };
const knowsCallers = {
  store: () => memoryIdempotencyStore(),
  caller: (request: { user: { id: string } }) => request.user.id,
};

describe.each(['Express', 'Fastify'] as const)('at boot on %s, a handler with @Idempotent()', (adapter) => {
  it.each<[string, AppParts, RegExp]>([
    ['a guard', { controllers: [Guarded] }, /Guarded\.run: it has guards.*scope: \(request/],
    ['a guard of its controller', { controllers: [AllGuarded] }, /AllGuarded\.run: it has guards/],
    [
      'a guard of the application',
      { controllers: [Open], providers: [guardOfAll] },
      /Open\.run: it has guards/,
    ],
    [
      'a guard that the application is given',
      { controllers: [Open], configure: (app) => app.useGlobalGuards(new SignedIn()) },
      /Open\.run: it has guards/,
    ],
  ])('is refused behind %s, unless something says who a caller is', async (_what, parts, why) => {
    const refusal = { message: expect.stringMatching(why) };
    expect(await refusalAtBoot(adapter, parts)).toMatchObject(refusal);
    expect(await refusalAtBoot(adapter, { ...parts, idempotency: knowsCallers })).toBeUndefined();
  });

  it.each<[string, AppParts]>([
    ['no guard', { controllers: [Open] }],
    ['a guard and a scope, or a written key', { controllers: [Scoped] }],
    ['a guard of all and a scope', { controllers: [Scoped], providers: [guardOfAll] }],
  ])('is let through with %s', async (_what, parts) => {
    expect(await refusalAtBoot(adapter, parts)).toBeUndefined();
  });
});
