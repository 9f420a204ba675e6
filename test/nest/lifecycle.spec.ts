import type { Server } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { Controller, Get, Injectable, type INestApplication, type OnModuleDestroy } from '@nestjs/common';
import { Transport } from '@nestjs/microservices';
import { Test } from '@nestjs/testing';
import {
  DistributedLockModule,
  Locked,
  LockEvents,
  LockService,
  memoryStore,
  type LockStore,
} from 'nestjs-distributed-lock';
import request from 'supertest';

@Controller()
@Injectable()
class Work implements OnModuleDestroy {
  readonly done: string[] = [];
  counted = 0;
  begun = (): void => undefined;
  mayEnd = Promise.resolve();

  @Get()
  @Locked('work')
  async run(): Promise<string> {
    this.begun();
    await this.mayEnd;
    this.done.push('work');
    return 'done';
  }

  @Locked('counter', { waitMs: 60_000 })
  async countUp(): Promise<number> {
    const read = this.counted;
    await new Promise((resolve) => setImmediate(resolve));
    return (this.counted = read + 1);
  }

  @Locked('endless', { waitMs: 0 })
  async endless(): Promise<void> {
    await this.mayEnd;
  }

  /** The application is stopping, and may still use its locks. */
  @Locked('farewell')
  async onModuleDestroy(): Promise<void> {
    return Promise.resolve(void this.done.push('farewell'));
  }
}

interface Booted {
  readonly app: INestApplication;
  readonly store: LockStore;
  readonly closed: jest.Mock;
}

async function boot(shutdownGraceMs = 60_000, asynchronous = false): Promise<Booted> {
  const store = memoryStore();
  const closed = jest.fn(() => Promise.resolve());
  const options = { store: Object.assign(store, { close: closed }), shutdownGraceMs };
  const locks = asynchronous
    ? DistributedLockModule.forRootAsync({ useFactory: () => options })
    : DistributedLockModule.forRoot(options);
  const module = await Test.createTestingModule({ imports: [locks], controllers: [Work] }).compile();
  const app = await module.createNestApplication({ logger: false }).init();
  return { app, store, closed };
}

/** What keeps the process alive now and did not before. */
function addedSince(before: readonly string[]): string[] {
  const left = [...before];
  return process.getActiveResourcesInfo().filter((kind) => {
    const i = left.indexOf(kind);
    if (i >= 0) left.splice(i, 1);
    return i < 0;
  });
}

/** True once the application takes no new locks. */
async function refuses(app: INestApplication): Promise<boolean> {
  const lease = await app
    .get(LockService)
    .tryAcquire('probe')
    .catch(() => undefined);
  await lease?.release();
  return lease === undefined;
}

describe('an application that closes', () => {
  it('lets running work finish, takes no new locks, gives everything back and closes its stores', async () => {
    const { app, closed } = await boot();
    const work = app.get(Work);
    let letItEnd!: () => void;
    work.mayEnd = new Promise<void>((resolve) => (letItEnd = resolve));
    const begun = new Promise<void>((resolve) => (work.begun = resolve));
    const running = work.run();
    await begun;
    const closing = app.close();
    while (!(await refuses(app))) await sleep(1);
    expect(closed).not.toHaveBeenCalled();
    letItEnd();
    await expect(work.run()).rejects.toMatchObject({ code: 'SHUTTING_DOWN', outcome: 'not-started' });
    await expect(running).resolves.toBe('done');
    await closing;
    expect(work.done).toEqual(['farewell', 'work']);
    expect(app.get(LockService).busy).toBe(false);
    expect(closed).toHaveBeenCalledTimes(1);
  });

  it('gives up what is still held after the grace time, and tells its holder', async () => {
    const { app, store } = await boot(20);
    const work = app.get(Work);
    let letItEnd!: () => void;
    work.mayEnd = new Promise<void>((resolve) => (letItEnd = resolve));
    const endless = work.endless();
    const told = expect(endless).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'session-ended' });
    while (!app.get(LockService).busy) await sleep(1);
    await app.close();
    const claim = { key: 'endless', ownerId: 'next', ttlMs: 100 };
    await expect(store.tryAcquire(claim, 100)).resolves.toMatchObject({ kind: 'granted' });
    letItEnd();
    await told;
  });

  it.each([false, true])(
    'C037: closes twice without harm (asynchronous registration: %s)',
    async (asynchronous) => {
      const { app, closed } = await boot(60_000, asynchronous);
      app.enableShutdownHooks();
      await Promise.all([app.close(), app.close()]);
      await app.close();
      expect(closed).toHaveBeenCalledTimes(1);
    },
  );

  it('C037: closes as a hybrid application, with HTTP and a microservice', async () => {
    const { app, closed } = await boot();
    app.enableShutdownHooks();
    app.connectMicroservice(
      { transport: Transport.TCP, options: { host: '127.0.0.1', port: 0 } },
      { inheritAppConfig: true },
    );
    await app.startAllMicroservices();
    await app.listen(0, '127.0.0.1');
    await request(app.getHttpServer() as Server)
      .get('/')
      .expect(200, 'done');
    await app.close();
    await app.close();
    expect(closed).toHaveBeenCalledTimes(1);
  });

  it('ends the stream of events', async () => {
    const { app } = await boot();
    const ended = jest.fn();
    app.get(LockEvents).subscribe({ complete: ended });
    await app.close();
    expect(ended).toHaveBeenCalledTimes(1);
  });

  it('C014: leaves no timer and no handle behind', async () => {
    const before = process.getActiveResourcesInfo();
    const { app } = await boot(20);
    await Promise.all(
      Array.from({ length: 20 }, (_, i) => app.get(LockService).withLock(`key:${i}`, () => sleep(1))),
    );
    await app.get(LockService).acquire('never released');
    await app.close();
    expect(addedSince(before)).toEqual([]);
  });

  it('C014: answers 1 000 calls of one locked method on one key in turn, and leaves no timer and no listener', async () => {
    const before = process.getActiveResourcesInfo();
    const added = jest.spyOn(AbortSignal.prototype, 'addEventListener');
    const removed = jest.spyOn(AbortSignal.prototype, 'removeEventListener');
    const { app } = await boot();
    const work = app.get(Work);
    const answers = await Promise.all(Array.from({ length: 1_000 }, () => work.countUp()));
    expect(answers).toEqual(Array.from({ length: 1_000 }, (_, i) => i + 1));
    expect(app.get(LockService).busy).toBe(false);
    expect(addedSince(before)).toEqual([]);
    expect(added.mock.calls.length).toBeGreaterThanOrEqual(999);
    const left = new Set(added.mock.calls.map(([, listener]) => listener));
    for (const [, listener] of removed.mock.calls) left.delete(listener);
    expect(left.size).toBe(0);
    await app.close();
    jest.restoreAllMocks();
  });

  it('C014: is kept alive by a lock that it holds, and by nothing of ours once the lock is given back', async () => {
    const { app } = await boot();
    const before = process.getActiveResourcesInfo();
    const lease = await app.get(LockService).acquire('held');
    expect(addedSince(before)).toContain('Timeout');
    await lease.release();
    expect(addedSince(before)).toEqual([]);
    await app.close();
  });
});
