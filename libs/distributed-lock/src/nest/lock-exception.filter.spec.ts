import { Logger, type ArgumentsHost } from '@nestjs/common';
import type { HttpAdapterHost } from '@nestjs/core';
import { firstValueFrom, type Observable } from 'rxjs';

import {
  FencedOutError,
  isLockError,
  LeaseLostError,
  LockConfigInvalidError,
  LockKeyInvalidError,
  LockTimeoutError,
  ShuttingDownError,
  StoreUnavailableError,
  type LockError,
} from '../core/index.js';
import { LockExceptionFilter } from './lock-exception.filter.js';
import { toHttpException } from './lock-problem.js';

const busy = (retryAfterMs: number | null): LockTimeoutError =>
  new LockTimeoutError('busy', { key: 'invoice:42', store: 'default', retryAfterMs });

function hostOf(type: string, parts: { response?: unknown; client?: unknown } = {}): ArgumentsHost {
  return {
    getType: () => type,
    switchToHttp: () => ({ getResponse: () => parts.response }),
    switchToWs: () => ({ getClient: () => parts.client }),
  } as unknown as ArgumentsHost;
}

describe('toHttpException', () => {
  it.each<[string, LockError, number]>([
    ['busy', busy(100), 423],
    ['a key that cannot be made', new LockKeyInvalidError('key'), 400],
    ['a store that is away', new StoreUnavailableError('away', {}), 503],
    ['shutdown', new ShuttingDownError('stop', {}), 503],
    ['a loss', new LeaseLostError('lost', { reason: 'expired' }), 503],
    ['a refused write', new FencedOutError('fenced', {}), 503],
    ['wrong wiring', new LockConfigInvalidError('config'), 500],
    [
      'busy behind a body that had begun',
      new LockTimeoutError('x', { retryAfterMs: 1, outcome: 'unknown' }),
      503,
    ],
    ['a missing key behind a body that had begun', new LockKeyInvalidError('x', { outcome: 'unknown' }), 503],
    [
      'wrong wiring behind a body that had begun',
      new LockConfigInvalidError('x', { outcome: 'unknown' }),
      503,
    ],
  ])('%s', (_, error, status) => {
    const exception = toHttpException(error);
    expect(exception?.getStatus()).toBe(status);
    expect(exception?.problem).toMatchObject({ status, code: error.code, outcome: error.outcome });
    expect(exception?.cause).toBe(error);
    if (error.outcome === 'unknown') expect(status).toBe(503);
  });

  it.each([
    [null, '1'],
    [0, '1'],
    [999, '1'],
    [1_001, '2'],
    [60_000, '60'],
  ])('says when to come back: after %s ms in whole seconds', (retryAfterMs, seconds) => {
    expect(toHttpException(busy(retryAfterMs))?.headers['Retry-After']).toBe(seconds);
  });

  it.each([
    ['a store that is away', new StoreUnavailableError('away', {}), '2'],
    ['shutdown: another replica may do it', new ShuttingDownError('stop', {}), '2'],
    [
      'a store that fell silent afterwards',
      new StoreUnavailableError('away', { outcome: 'unknown' }),
      undefined,
    ],
    ['wrong wiring', new LockConfigInvalidError('config'), undefined],
  ])('asks to come back only where nothing was done and that may change: %s', (_, error, seconds) => {
    expect(toHttpException(error)?.headers['Retry-After']).toBe(seconds);
  });

  it('knows the errors of another copy of the package by their mark', () => {
    const foreign = Object.assign(new Error('foreign'), {
      [Symbol.for('nestjs-distributed-lock/error')]: true,
      code: 'LOCK_TIMEOUT',
      statusCode: 423,
      outcome: 'not-started',
      retryAfterMs: 3_000,
    });
    expect(isLockError(foreign)).toBe(true);
    expect(toHttpException(foreign)?.headers['Retry-After']).toBe('3');
  });

  it.each([[new Error('x')], [undefined], ['text'], [{ code: 'LOCK_TIMEOUT' }]])(
    'leaves %p alone',
    (error) => {
      expect(toHttpException(error)).toBeUndefined();
    },
  );
});

describe('LockExceptionFilter', () => {
  const adapter = { isHeadersSent: jest.fn(), setHeader: jest.fn(), reply: jest.fn(), end: jest.fn() };
  const lockFilter = new LockExceptionFilter({ httpAdapter: adapter } as unknown as HttpAdapterHost);

  beforeEach(() => {
    jest.resetAllMocks();
    jest.spyOn(Logger.prototype, 'error').mockImplementation(() => undefined);
  });

  it('is chosen by Nest for the errors of locks only', () => {
    const [type] = Reflect.getMetadata('__filterCatchExceptions__', LockExceptionFilter) as [
      abstract new () => unknown,
    ];
    expect(busy(1) instanceof type).toBe(true);
    expect(new Error('x') instanceof type).toBe(false);
  });

  it('answers through the adapter, so that Express and Fastify both work', () => {
    const response = {};
    lockFilter.catch(busy(2_000), hostOf('http', { response }));
    expect(adapter.setHeader).toHaveBeenCalledWith(response, 'Retry-After', '2');
    expect(adapter.setHeader).toHaveBeenCalledWith(
      response,
      'Content-Type',
      'application/problem+json; charset=utf-8',
    );
    expect(adapter.reply).toHaveBeenCalledWith(
      response,
      expect.stringContaining('"code":"LOCK_TIMEOUT"'),
      423,
    );
  });

  it('only ends an answer that has begun', () => {
    adapter.isHeadersSent.mockReturnValue(true);
    const response = {};
    lockFilter.catch(busy(1), hostOf('http', { response }));
    expect(adapter.end).toHaveBeenCalledWith(response);
    expect(adapter.reply).not.toHaveBeenCalled();
  });

  it('passes the error on as it is in GraphQL, and where "http" has no response', () => {
    const error = busy(1);
    expect(() => lockFilter.catch(error, hostOf('graphql'))).toThrow(error);
    expect(() => lockFilter.catch(error, hostOf('http'))).toThrow(error);
  });

  it('passes the error on as a stream to the transport of a message handler', async () => {
    const error = busy(1);
    const answer = lockFilter.catch(error, hostOf('rpc')) as Observable<never>;
    await expect(firstValueFrom(answer)).rejects.toBe(error);
  });

  it('tells the client of a socket, since nobody would catch what is thrown there', () => {
    const emit = jest.fn();
    lockFilter.catch(busy(1), hostOf('ws', { client: { emit } }));
    expect(emit).toHaveBeenCalledWith('exception', {
      status: 'error',
      message: 'busy',
      code: 'LOCK_TIMEOUT',
    });
    const send = jest.fn();
    lockFilter.catch(busy(1), hostOf('ws', { client: { readyState: 1, send, emit } }));
    expect(JSON.parse(send.mock.calls[0][0] as string)).toMatchObject({ event: 'exception' });
    expect(emit).toHaveBeenCalledTimes(1);
  });
});
