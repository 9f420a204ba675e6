import { Agent, request as send, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { buffer, text } from 'node:stream/consumers';

import {
  Injectable,
  type INestApplication,
  type ModuleMetadata,
  type Provider,
  type Type,
} from '@nestjs/common';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Test } from '@nestjs/testing';
import type { Clock, IdempotencyModuleOptions } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';

const ADAPTERS = ['Express', 'Fastify'] as const;
export type Adapter = (typeof ADAPTERS)[number];

/** What handlers of both adapters do with a response. */
export interface AnyResponse {
  status(code: number): AnyResponse;
  header(name: string, value: string | string[]): AnyResponse;
  send(body: string): AnyResponse;
}

/** How often handlers have run; they wait at the gate, and fail if told to. */
@Injectable()
export class Calls {
  count = 0;
  gate: Promise<void> = Promise.resolve();
  failWith: Error | undefined;

  /** What one run of a handler does. */
  async run<T>(value: T | ((run: number) => T)): Promise<T> {
    this.count += 1;
    const { count, failWith } = this;
    await this.gate;
    if (failWith) throw failWith;
    return typeof value === 'function' ? (value as (run: number) => T)(count) : value;
  }

  /** Closes the gate; returns what opens it. */
  close(): () => void {
    let open!: () => void;
    this.gate = new Promise((resolve) => (open = resolve));
    return open;
  }

  async arrival(): Promise<void> {
    while (this.count === 0) await new Promise(setImmediate);
  }
}

export interface AppParts {
  readonly controllers: readonly Type[];
  readonly providers?: readonly Provider[];
  readonly idempotency?: IdempotencyModuleOptions;
  readonly clock?: Clock;
  readonly configure?: (app: INestApplication) => void;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  readonly text: string;
}

/** One request. A header with several values is sent several times. */
export interface Sent {
  readonly method?: string;
  readonly key?: string | string[];
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

/** An application that listens on a port of its own. */
export class HttpApp {
  private constructor(readonly nest: INestApplication) {}

  static async start(adapter: Adapter, parts: AppParts): Promise<HttpApp> {
    const { controllers, providers = [], idempotency, clock, configure } = parts;
    const metadata: ModuleMetadata = {
      imports: [LockTesting.module({ clock, ...(idempotency && { idempotency }) })],
      controllers: [...controllers],
      providers: [Calls, ...providers],
    };
    const module = await Test.createTestingModule(metadata).compile();
    const options = { logger: false } as const;
    const nest =
      adapter === 'Fastify'
        ? module.createNestApplication(new FastifyAdapter(), options)
        : module.createNestApplication(options);
    configure?.(nest);
    await nest.listen(0, '127.0.0.1');
    return new HttpApp(nest);
  }

  get calls(): Calls {
    return this.nest.get(Calls);
  }

  send(path: string, sent: Sent = {}): Promise<Answer> {
    const { method = 'POST', key, headers = {}, body, signal } = sent;
    const json = body === undefined ? undefined : JSON.stringify(body);
    return exchange(
      {
        port: this.#port,
        host: '127.0.0.1',
        path,
        method,
        agent: new Agent(),
        signal,
        headers: {
          ...(json === undefined ? {} : { 'Content-Type': 'application/json' }),
          ...(key === undefined ? {} : { 'Idempotency-Key': key }),
          ...headers,
        },
      },
      json,
    );
  }

  /** The same request twice, one after the other. */
  async twice(path: string, sent: Sent = {}): Promise<readonly [first: Answer, second: Answer]> {
    return [await this.send(path, sent), await this.send(path, sent)];
  }

  /** For what no client would send. Latin-1, as it stands. */
  async sendRaw(lines: readonly string[]): Promise<string> {
    const socket = connect(this.#port, '127.0.0.1');
    socket.end(Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'));
    return text(socket);
  }

  close(): Promise<void> {
    return this.nest.close();
  }

  get #port(): number {
    return (this.nest.getHttpServer() as { address(): AddressInfo }).address().port;
  }
}

function exchange(options: Parameters<typeof send>[1] & object, body?: string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = send(options as Parameters<typeof send>[0], (response) => {
      const { statusCode = 0, headers } = response;
      buffer(response).then(
        (bytes) => resolve({ status: statusCode, headers, bytes, text: String(bytes) }),
        reject,
      );
    });
    request.on('error', reject).end(body);
  });
}

/** Runs the same tests on both adapters of Nest, with an application of its own for each test. */
export function describeOnEachAdapter(
  title: string,
  parts: AppParts,
  tests: (app: () => HttpApp, adapter: Adapter) => void,
): void {
  describe.each(ADAPTERS)(`${title}, on %s`, (adapter) => {
    let app: HttpApp;
    beforeEach(async () => (app = await HttpApp.start(adapter, parts)));
    afterEach(async () => {
      await LockTesting.reset();
      await app.close();
    });
    tests(() => app, adapter);
  });
}

export function expectReplay({ headers }: Answer): void {
  expect(headers).toMatchObject({ 'idempotent-replayed': 'true', 'idempotency-status': 'replayed' });
}

export function problemOf({ status, headers, text: body }: Answer): Record<string, unknown> {
  expect(headers['content-type']).toBe('application/problem+json; charset=utf-8');
  return { sent: status, ...(JSON.parse(body) as object) };
}

/** Why an application does not boot; one that does is closed again. */
export async function refusalAtBoot(adapter: Adapter, parts: AppParts): Promise<unknown> {
  const app = await HttpApp.start(adapter, parts).catch((error: unknown) => error);
  if (!(app instanceof HttpApp)) return app;
  await app.close();
  return undefined;
}
