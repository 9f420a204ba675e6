import type { Server } from 'node:http';

import {
  applyDecorators,
  Controller,
  Get,
  HttpCode,
  Injectable,
  Param,
  ParseIntPipe,
  Query,
  SetMetadata,
  UseGuards,
  type CanActivate,
  type ExecutionContext,
  type INestApplication,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { EventPattern, MessagePattern, Payload } from '@nestjs/microservices';
import { ApiOkResponse, ApiOperation, ApiQuery, DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { Test } from '@nestjs/testing';
import { currentLease, Locked } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';
import request from 'supertest';

@Injectable()
class RolesGuard implements CanActivate {
  constructor(private readonly reflector: Reflector) {}

  canActivate(context: ExecutionContext): boolean {
    const role = this.reflector.get<string | undefined>('role', context.getHandler());
    return (
      role === undefined ||
      context.switchToHttp().getRequest<{ headers: { role?: string } }>().headers.role === role
    );
  }
}

const Role = (role: string): MethodDecorator => SetMetadata('role', role);

/** What everything in this file is about: the same decorators, with @Locked at both ends and in the middle. */
function routed(path: string): MethodDecorator[] {
  return [
    Get(`${path}/:id`),
    HttpCode(202),
    UseGuards(RolesGuard),
    Role('clerk'),
    ApiOperation({ summary: 'settles an invoice' }),
    ApiQuery({ name: 'amount', type: Number }),
    ApiOkResponse({ description: 'settled' }),
    MessagePattern('settle'),
    EventPattern('settled') as MethodDecorator,
  ];
}

@Controller()
class Invoices {
  @Locked('invoice:<id>')
  @applyDecorators(...routed('above'))
  async above(
    @Param('id', ParseIntPipe) id: number,
    @Query('amount', ParseIntPipe) amount: number,
  ): Promise<object> {
    return Promise.resolve({ id, amount, key: currentLease()?.key });
  }

  @applyDecorators(...routed('below'))
  @Locked('invoice:<id>')
  async below(
    @Param('id', ParseIntPipe) id: number,
    @Query('amount', ParseIntPipe) amount: number,
  ): Promise<object> {
    return Promise.resolve({ id, amount, key: currentLease()?.key });
  }

  @applyDecorators(...routed('within').slice(0, 4), Locked('invoice:<id>'), ...routed('within').slice(4))
  async within(
    @Param('id', ParseIntPipe) id: number,
    @Query('amount', ParseIntPipe) amount: number,
  ): Promise<object> {
    return Promise.resolve({ id, amount, key: currentLease()?.key });
  }

  @applyDecorators(...routed('without'))
  async without(
    @Param('id', ParseIntPipe) id: number,
    @Query('amount', ParseIntPipe) amount: number,
  ): Promise<object> {
    return Promise.resolve({ id, amount });
  }
}

const NAMES = ['above', 'below', 'within'] as const;

/** Everything that hangs on the function, and on the class under its name. */
function metadataOf(name: (typeof NAMES)[number] | 'without'): Record<string, unknown> {
  const method = Invoices.prototype[name];
  const parts: [string, object, string | undefined][] = [
    ['function', method, undefined],
    ['prototype', Invoices.prototype, name],
    ['class', Invoices, name],
  ];
  return Object.fromEntries(
    parts.flatMap(([part, target, key]) =>
      (key === undefined ? Reflect.getMetadataKeys(target) : Reflect.getMetadataKeys(target, key)).map(
        (metadataKey) => [
          `${part} ${String(metadataKey)}`,
          key === undefined
            ? Reflect.getMetadata(metadataKey, target)
            : Reflect.getMetadata(metadataKey, target, key),
        ],
      ),
    ),
  );
}

function withoutName(value: unknown): unknown {
  const text = JSON.stringify(value, (_, part: unknown) => (typeof part === 'function' ? part.name : part));
  return JSON.parse(text.replaceAll(/above|below|within|without|Above|Below|Within|Without/g, '*'));
}

describe('C056: @Locked above, below and among other decorators', () => {
  let app: INestApplication;
  const server = (): Server => app.getHttpServer() as Server;

  beforeAll(async () => {
    const imports = [LockTesting.module()];
    const module = await Test.createTestingModule({ imports, controllers: [Invoices] }).compile();
    app = await module.createNestApplication().init();
  });

  afterAll(() => app.close());

  it.each(NAMES)('%s: keeps route, status, pipes and guards', async (name) => {
    const allowed = await request(server()).get(`/${name}/42?amount=7`).set('role', 'clerk');
    expect({ status: allowed.status, body: allowed.body as unknown }).toEqual({
      status: 202,
      body: { id: 42, amount: 7, key: 'invoice:42' },
    });
    await request(server()).get(`/${name}/42?amount=7`).expect(403);
    await request(server()).get(`/${name}/42?amount=seven`).set('role', 'clerk').expect(400);
    await request(server()).get(`/${name}/x?amount=7`).set('role', 'clerk').expect(400);
  });

  it.each(NAMES)('%s: has the metadata of the same method without a lock', (name) => {
    const plain = metadataOf('without');
    expect(Object.keys(plain).length).toBeGreaterThan(8);
    expect(withoutName(metadataOf(name))).toEqual(withoutName(plain));
  });

  it.each(NAMES)('%s: is described by OpenAPI like the same method without a lock', (name) => {
    const { paths } = SwaggerModule.createDocument(app, new DocumentBuilder().build());
    expect(paths[`/${name}/{id}`]?.get?.parameters).toHaveLength(2);
    expect(withoutName(paths[`/${name}/{id}`])).toEqual(withoutName(paths['/without/{id}']));
  });

  it.each(NAMES)('%s: keeps the name and the length of the function', (name) => {
    expect(Invoices.prototype[name]).toHaveLength(2);
    expect(Invoices.prototype[name].name).toBe(name);
  });

  it('lets message handlers get their payload', () => {
    class Handlers {
      @MessagePattern('settle')
      @Locked('invoice:<0.id>')
      async settle(@Payload() _data: { id: string }): Promise<void> {}
    }
    expect(Reflect.getMetadata('microservices:pattern', Handlers.prototype.settle)).toEqual(['settle']);
  });
});
