import type { Server } from 'node:http';

import {
  ArgumentsHost,
  Catch,
  Controller,
  Get,
  HttpException,
  Logger,
  Param,
  Post,
  type DynamicModule,
  type ExceptionFilter,
  type INestApplication,
} from '@nestjs/common';
import { BaseExceptionFilter } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { Locked, toHttpException } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';
import request from 'supertest';

@Controller('invoices')
class Invoices {
  @Post(':id/pay')
  @Locked('invoice:<id>', { waitMs: 0 })
  async pay(@Param('id') id: string): Promise<string> {
    return Promise.resolve(id);
  }

  @Post(':id/late')
  @Locked('invoice:<id>')
  async late(@Param('id') id: string): Promise<void> {
    await LockTesting.lose(`invoice:${id}`);
  }

  @Get('500')
  fail(): void {
    throw new TypeError('a mistake');
  }
}

let app: INestApplication;
const server = (): Server => app.getHttpServer() as Server;

async function boot(locks: DynamicModule, ...filters: ExceptionFilter[]): Promise<void> {
  const module = await Test.createTestingModule({ imports: [locks], controllers: [Invoices] }).compile();
  app = module.createNestApplication({ logger: false });
  app.useGlobalFilters(...filters);
  await app.init();
}

const post = (path: string): request.Test => request(server()).post(`/invoices/${path}`).send({});
const get = (path: string): request.Test => request(server()).get(`/invoices/${path}`);

afterEach(async () => {
  await LockTesting.reset();
  await app.close();
});

describe('an application with a filter of its own', () => {
  @Catch()
  class CatchAll extends BaseExceptionFilter {
    override catch(error: unknown, host: ArgumentsHost): void {
      const exception = toHttpException(error) ?? error;
      const status = exception instanceof HttpException ? exception.getStatus() : 500;
      host
        .switchToHttp()
        .getResponse<{ status(code: number): { json(body: unknown): void } }>()
        .status(status)
        .json({
          mine: exception instanceof HttpException ? exception.getResponse() : 'unknown',
        });
    }
  }

  it('answers by itself with filter: false, and may ask what the answer would be', async () => {
    await boot(LockTesting.module({ filter: false }), new CatchAll());
    const release = await LockTesting.holdElsewhere('invoice:42');
    await post('42/pay')
      .expect(423)
      .expect(({ body }) => {
        expect(body).toMatchObject({ mine: { status: 423, code: 'LOCK_TIMEOUT' } });
      });
    await get('500').expect(500, { mine: 'unknown' });
    await release();
  });

  it('is told 500 by Nest for errors of locks without any filter', async () => {
    await boot(LockTesting.module({ filter: false }));
    const release = await LockTesting.holdElsewhere('invoice:42');
    await post('42/pay').expect(500);
    await release();
  });
});

describe('what the filter logs', () => {
  it('is what the client is not told: the message of errors that are the application’s affair', async () => {
    const logged = jest.spyOn(Logger.prototype, 'error').mockImplementation(() => undefined);
    await boot(LockTesting.module());
    await post('42/late').expect(503);
    expect(logged).toHaveBeenCalledWith(expect.stringContaining('"invoice:42" was lost'), expect.any(String));
    logged.mockClear();
    const release = await LockTesting.holdElsewhere('invoice:42');
    await post('42/pay').expect(423);
    expect(logged).not.toHaveBeenCalled();
    await release();
    logged.mockRestore();
  });
});
