import 'reflect-metadata';

import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';

import { Controller, Module, Param, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DistributedLockModule, Idempotent, memoryStore } from 'nestjs-distributed-lock';

import { storeAt } from './store-at.js';

/** What the application tells its parent. */
export type AppNews =
  | { readonly type: 'listening'; readonly port: number }
  | { readonly type: 'ran'; readonly id: string }
  /** All that was told before has been sent. */
  | { readonly type: 'heard' };

/** Wide enough for the others to come in between. */
const TURNS_OF_WORK = 20;

@Controller('payments')
class Payments {
  @Post('refuse/:id')
  @Idempotent()
  async refuse(@Param('id') id: string): Promise<object> {
    return this.#pay(id);
  }

  @Post('wait/:id')
  @Idempotent({ waitMs: 20_000 })
  async wait(@Param('id') id: string): Promise<object> {
    return this.#pay(id);
  }

  @Post('bare/:id')
  async bare(@Param('id') id: string): Promise<object> {
    return this.#pay(id);
  }

  async #pay(id: string): Promise<object> {
    process.send?.({ type: 'ran', id } satisfies AppNews);
    for (let done = 0; done < TURNS_OF_WORK; done += 1) await turn();
    return { id, by: process.pid, at: process.hrtime.bigint().toString() };
  }
}

const place = process.argv[2];
if (place) {
  const locks = DistributedLockModule.forRoot({
    store: memoryStore(),
    idempotency: { store: storeAt(place) },
  });
  class App {}
  Module({ imports: [locks], controllers: [Payments] })(App);
  const app = await NestFactory.create(App, { logger: ['error'] });
  await app.listen(0, '127.0.0.1');
  const server = app.getHttpServer() as Server;
  server.keepAliveTimeout = 0; // however slow the machine is, no idle connection is closed while a request comes in
  const { port } = server.address() as AddressInfo;
  process.on('message', () => process.send?.({ type: 'heard' } satisfies AppNews));
  process.once('disconnect', () => void app.close().finally(() => process.exit(0)));
  process.send?.({ type: 'listening', port } satisfies AppNews);
}
