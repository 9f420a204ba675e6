import { Catch, Inject, Logger, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { throwError, type Observable } from 'rxjs';

import { isLockError, type LockError } from '../core/index.js';
import { toHttpException, type LockHttpException } from './lock-problem.js';

const logger = new Logger('DistributedLock');

/** Nest asks `instanceof`, which is false for the errors of another copy of the package; this answers by their mark. */
abstract class AnyLockError {
  static [Symbol.hasInstance](error: unknown): boolean {
    return isLockError(error);
  }
}

/**
 * Answers HTTP requests that failed because of a lock with a problem document; sees no other errors. In other contexts the
 * error is passed on as it is.
 */
@Catch(AnyLockError)
export class LockExceptionFilter implements ExceptionFilter<LockError> {
  constructor(@Inject(HttpAdapterHost) private readonly adapterHost: HttpAdapterHost) {}

  catch(error: LockError, host: ArgumentsHost): Observable<never> | void {
    const context = host.getType<string>();
    if (context === 'rpc') return throwError(() => error);
    if (context === 'ws') return tellSocket(host.switchToWs().getClient(), error);
    const answer = toHttpException(error);
    if (context !== 'http' || !answer || !this.#answer(host.switchToHttp().getResponse(), answer))
      throw error;
    if (answer.getStatus() >= 500) logger.error(error.message, error.stack);
  }

  /** False where "http" is only what a context calls itself for want of a better name. */
  #answer(response: unknown, { problem, headers }: LockHttpException): boolean {
    const adapter = this.adapterHost.httpAdapter;
    if (typeof response !== 'object' || response === null || !adapter) return false;
    if (adapter.isHeadersSent(response)) {
      adapter.end(response);
      return true;
    }
    for (const [name, value] of Object.entries(headers)) adapter.setHeader(response, name, value);
    // As text: the Express adapter takes an object with this content type for a mistake.
    adapter.reply(response, JSON.stringify(problem), problem.status);
    return true;
  }
}

/** Throwing here would end the process: nobody catches it. So the client is told the way Nest's own filter does. */
function tellSocket(client: SocketClient, error: LockError): void {
  const problem = { status: 'error', message: error.message, code: error.code };
  if (typeof client.readyState === 'number' && client.send) {
    client.send(JSON.stringify({ event: 'exception', data: problem }));
  } else client.emit?.('exception', problem);
}

/** A `ws` socket or one of socket.io. */
interface SocketClient {
  readonly readyState?: unknown;
  send?(text: string): void;
  emit?(event: string, payload: unknown): void;
}
