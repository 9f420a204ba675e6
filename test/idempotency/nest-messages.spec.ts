import type { AddressInfo, Server } from 'node:net';

import { Controller, Injectable, type INestMicroservice } from '@nestjs/common';
import {
  ClientProxyFactory,
  Ctx,
  MessagePattern,
  Payload,
  Transport,
  type ClientProxy,
  type MicroserviceOptions,
  type TcpContext,
} from '@nestjs/microservices';
import { Test } from '@nestjs/testing';
import { Idempotent, Locked, LockContext } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';
import { lastValueFrom } from 'rxjs';

interface Order {
  readonly id: string;
  readonly amount: number;
}

@Injectable()
class Runs {
  count = 0;
  gate: Promise<void> = Promise.resolve();
}

@Controller()
class Handlers {
  constructor(
    private readonly runs: Runs,
    private readonly context: LockContext,
  ) {}

  @MessagePattern('settle')
  @Locked('invoice:<order.id>', { waitMs: 0 })
  @Idempotent('settle:<order.id>', { waitMs: 0 })
  async settle(order: Order): Promise<object> {
    this.runs.count += 1;
    await this.runs.gate;
    return { ...order, run: this.runs.count, key: this.context.idempotencyKey };
  }

  @Idempotent('book:<order.id>', { fingerprint: (order: Order) => order })
  @MessagePattern('book')
  @Locked('invoice:<order.id>', { onBusy: 'skip' })
  async book(@Payload() order: Order, @Ctx() context: TcpContext): Promise<string | undefined> {
    this.runs.count += 1;
    return Promise.resolve(`${context.getPattern()} ${order.id}`);
  }
}

let app: INestMicroservice;
let client: ClientProxy;
let runs: Runs;

beforeEach(async () => {
  const imports = [LockTesting.module()];
  const providers = [Runs];
  const module = await Test.createTestingModule({ imports, providers, controllers: [Handlers] }).compile();
  const tcp = (port: number) => ({ transport: Transport.TCP, options: { host: '127.0.0.1', port } }) as const;
  app = module.createNestMicroservice<MicroserviceOptions>({ ...tcp(0), logger: false });
  await app.listen();
  const { port } = app.unwrap<Server>().address() as AddressInfo;
  client = ClientProxyFactory.create(tcp(port));
  runs = app.get(Runs);
});

afterEach(async () => {
  await LockTesting.reset();
  await client.close();
  await app.close();
});

const send = (pattern: string, amount = 5): Promise<unknown> =>
  lastValueFrom(client.send<unknown, Order>(pattern, { id: '42', amount }), { defaultValue: undefined });

describe('a message handler with @Idempotent', () => {
  it('runs once for a message that is delivered twice', async () => {
    const first = await send('settle');
    expect(first).toEqual({ id: '42', amount: 5, run: 1, key: 'settle:42' });
    await expect(send('settle')).resolves.toEqual(first);
    expect(runs.count).toBe(1);
  });

  it('is never acknowledged as done while it runs elsewhere', async () => {
    let open!: () => void;
    runs.gate = new Promise((resolve) => (open = resolve));
    const first = send('settle');
    while (runs.count === 0) await new Promise(setImmediate);
    await expect(send('settle')).rejects.toMatchObject({ code: 'IDEMPOTENCY_IN_PROGRESS' });
    open();
    await first;
    await expect(send('settle')).resolves.toMatchObject({ run: 1 });
  });

  it('refuses another payload under a known key', async () => {
    await send('settle', 5);
    await expect(send('settle', 6)).rejects.toMatchObject({ code: 'IDEMPOTENCY_KEY_REUSED' });
  });

  it('is not done when it was skipped because the lock was busy: the next delivery runs', async () => {
    const release = await LockTesting.holdElsewhere('invoice:42');
    await expect(send('book')).resolves.toBeUndefined();
    expect(runs.count).toBe(0);
    await release();
    await expect(send('book')).resolves.toBe('book 42');
    await expect(send('book')).resolves.toBe('book 42');
    expect(runs.count).toBe(1);
  });
});
