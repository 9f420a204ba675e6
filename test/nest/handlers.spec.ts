import type { AddressInfo, Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

import { Controller, Injectable, Logger } from '@nestjs/common';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import {
  ClientProxyFactory,
  MessagePattern,
  Transport,
  type MicroserviceOptions,
} from '@nestjs/microservices';
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { CurrentLease, currentLease, Locked, LockEvents, type Lease } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';
import { lastValueFrom } from 'rxjs';

const unhandled = jest.fn();

beforeAll(() => {
  process.on('unhandledRejection', unhandled);
  process.on('uncaughtException', unhandled);
});

afterAll(() => {
  process.off('unhandledRejection', unhandled);
  process.off('uncaughtException', unhandled);
  expect(unhandled).not.toHaveBeenCalled();
});

describe('C106: an event handler whose key is busy', () => {
  @Injectable()
  class Handlers {
    readonly ran: string[] = [];

    @OnEvent('above')
    @Locked('invoice:<id>', { waitMs: 0 })
    async above(id: string): Promise<void> {
      return Promise.resolve(void this.ran.push(`above ${id}`));
    }

    @Locked('invoice:<id>', { waitMs: 0 })
    @OnEvent('below')
    async below(id: string): Promise<void> {
      return Promise.resolve(void this.ran.push(`below ${id}`));
    }

    @OnEvent('skipping')
    @Locked('invoice:<id>', { onBusy: 'skip' })
    async skipping(id: string): Promise<void> {
      return Promise.resolve(void this.ran.push(`skipping ${id}`));
    }
  }

  it('does not run, ends no process, is logged by Nest, counted by an event, and runs once the key is free', async () => {
    const logged = jest.spyOn(Logger.prototype, 'error').mockImplementation(() => undefined);
    const module = await Test.createTestingModule({
      imports: [LockTesting.module(), EventEmitterModule.forRoot()],
      providers: [Handlers],
    }).compile();
    await module.init();
    const seen: string[] = [];
    module.get(LockEvents).subscribe(({ type, template }) => seen.push(`${type} ${template}`));
    const emitter = module.get(EventEmitter2);
    const handlers = module.get(Handlers);
    const release = await LockTesting.holdElsewhere('invoice:42');

    for (const event of ['above', 'below', 'skipping']) await emitter.emitAsync(event, '42');
    expect(handlers.ran).toEqual([]);
    expect(seen.filter((one) => one === 'refused invoice:<id>')).toHaveLength(3);
    expect(seen.filter((one) => one === 'skipped invoice:<id>')).toHaveLength(1);
    expect(logged).toHaveBeenCalledTimes(2);

    await release();
    for (const event of ['above', 'below', 'skipping']) await emitter.emitAsync(event, '42');
    expect(handlers.ran).toEqual(['above 42', 'below 42', 'skipping 42']);
    LockTesting.expectIdle();
    await module.close();
    logged.mockRestore();
  });

  it('C100: an event handler that outlives its emitter takes the lock anew', async () => {
    const order: string[] = [];
    let tellEnded!: () => void;
    const ended = new Promise<void>((resolve) => (tellEnded = resolve));
    @Injectable()
    class Outliving {
      constructor(private readonly emitter: EventEmitter2) {}

      @Locked('invoice:1')
      async settle(): Promise<void> {
        this.emitter.emit('settled', currentLease()?.token);
        order.push('settled');
        return Promise.resolve();
      }

      @OnEvent('settled', { async: true })
      async onSettled(token: number): Promise<void> {
        await ended;
        await this.follow(token);
      }

      @Locked('invoice:1')
      async follow(token: number): Promise<void> {
        order.push((currentLease()?.token ?? 0) > token ? 'followed with a new token' : 'joined');
        return Promise.resolve();
      }
    }
    const module = await Test.createTestingModule({
      imports: [LockTesting.module(), EventEmitterModule.forRoot()],
      providers: [Outliving],
    }).compile();
    await module.init();
    await module.get(Outliving).settle();
    LockTesting.expectIdle();
    tellEnded();
    while (order.length < 2) await sleep(5);
    expect(order).toEqual(['settled', 'followed with a new token']);
    await module.close();
  });
});

describe('a scheduled job', () => {
  it('runs under its lock, is skipped while another process has it, and warns at boot without minHoldMs', async () => {
    const warned = jest.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined);
    const keys: (string | undefined)[] = [];
    @Injectable()
    class Jobs {
      @Cron('0 0 1 1 *', { name: 'above' })
      @Locked('nightly', { onBusy: 'skip', minHoldMs: 1 })
      async above(): Promise<void> {
        return Promise.resolve(void keys.push(currentLease()?.key));
      }

      @Locked('nightly-too', { onBusy: 'skip' })
      @Cron('0 0 1 1 *', { name: 'below' })
      async below(): Promise<void> {
        return Promise.resolve(void keys.push(currentLease()?.key));
      }
    }
    const module = await Test.createTestingModule({
      imports: [LockTesting.module(), ScheduleModule.forRoot()],
      providers: [Jobs],
    }).compile();
    await module.init();
    expect(warned.mock.calls).toEqual([
      [expect.stringMatching(/^Jobs\.below has @Cron and @Locked without minHoldMs/)],
    ]);

    const release = await LockTesting.holdElsewhere('nightly');
    const jobs = module.get(SchedulerRegistry).getCronJobs();
    const ends: string[] = [];
    module.get(LockEvents).subscribe(({ type, template }) => {
      if (type === 'skipped' || type === 'released') ends.push(`${type} ${template}`);
    });
    const fire = async (name: string): Promise<void> => {
      const before = ends.length;
      await jobs.get(name)?.fireOnTick();
      while (ends.length === before) await sleep(1);
    };
    await fire('above');
    await fire('below');
    expect(keys).toEqual(['nightly-too']);
    await release();
    await fire('above');
    expect(keys).toEqual(['nightly-too', 'nightly']);
    expect(ends).toEqual(['skipped nightly', 'released nightly-too', 'released nightly']);
    await module.close();
    warned.mockRestore();
  });

  it('C045: locks also when it is added at run time, and is refused when it is added without its object', async () => {
    @Injectable()
    class Dynamic {
      readonly keys: (string | undefined)[] = [];

      @Locked('dynamic')
      async run(): Promise<void> {
        return Promise.resolve(void this.keys.push(currentLease()?.key));
      }
    }
    const module = await Test.createTestingModule({
      imports: [LockTesting.module()],
      providers: [Dynamic],
    }).compile();
    const dynamic = module.get(Dynamic);
    const bound = (): Promise<void> => dynamic.run();
    await bound();
    expect(dynamic.keys).toEqual(['dynamic']);
    // As a timer or a job library calls it: with an object of its own.
    const { run } = dynamic;
    await expect(run.call({ name: 'a job' } as never)).rejects.toThrow(
      /Dynamic\.run was called without its object/,
    );
    expect(dynamic.keys).toEqual(['dynamic']);
    await module.close();
  });
});

describe('a message handler', () => {
  @Controller()
  class Handlers {
    @MessagePattern('settle')
    @Locked('invoice:<data.id>', { waitMs: 0 })
    async settle(data: { id: string }, @CurrentLease() lease?: Lease): Promise<string> {
      return Promise.resolve(`${data.id} under ${lease?.key}`);
    }
  }

  it('locks by its payload, and passes the error of a busy key to the caller as it is', async () => {
    const imports = [LockTesting.module()];
    const module = await Test.createTestingModule({ imports, controllers: [Handlers] }).compile();
    const tcp = (port: number) =>
      ({ transport: Transport.TCP, options: { host: '127.0.0.1', port } }) as const;
    const app = module.createNestMicroservice<MicroserviceOptions>({ ...tcp(0), logger: false });
    await app.listen();
    const { port } = app.unwrap<Server>().address() as AddressInfo;
    const client = ClientProxyFactory.create(tcp(port));

    await expect(lastValueFrom(client.send('settle', { id: '42' }))).resolves.toBe('42 under invoice:42');
    const release = await LockTesting.holdElsewhere('invoice:42');
    await expect(lastValueFrom(client.send('settle', { id: '42' }))).rejects.toMatchObject({
      code: 'LOCK_TIMEOUT',
      outcome: 'not-started',
    });
    await release();
    await client.close();
    await app.close();
    LockTesting.expectIdle();
  });
});
