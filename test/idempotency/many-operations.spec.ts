import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  DistributedLockModule,
  Idempotent,
  IdempotencyService,
  memoryIdempotencyStore,
  memoryStore,
  type IdempotencyStore,
} from 'nestjs-distributed-lock';

interface Order {
  id: string;
  amount: number;
}

@Injectable()
class Ledger {
  readonly booked: string[] = [];

  @Idempotent('book:<order.id>')
  async book(order: Order): Promise<string> {
    this.booked.push(order.id);
    order.amount = 0;
    order.id = 'changed';
    return Promise.resolve(`booked ${this.booked.length}`);
  }

  /** As a consumer of the same message as {@link Mailer}. */
  @Idempotent()
  async onPaid(order: Order): Promise<string> {
    this.booked.push(order.id);
    return Promise.resolve(`booked ${order.id}`);
  }
}

@Injectable()
class Mailer {
  readonly sent: string[] = [];

  @Idempotent()
  async onPaid(order: Order): Promise<string> {
    this.sent.push(order.id);
    return Promise.resolve(`mailed ${order.id}`);
  }

  @Idempotent({ name: 'mails.send' })
  async send(order: Order): Promise<string> {
    this.sent.push(order.id);
    return Promise.resolve(`sent ${order.id}`);
  }
}

/** The same operation in a later release. */
@Injectable()
class PostOffice {
  readonly sent: string[] = [];

  @Idempotent({ name: 'mails.send' })
  async deliver(order: Order): Promise<string> {
    this.sent.push(order.id);
    return Promise.resolve(`delivered ${order.id}`);
  }
}

describe('operations that share one store', () => {
  let store: IdempotencyStore;

  beforeEach(() => void (store = memoryIdempotencyStore()));

  async function boot(...providers: (typeof Ledger | typeof Mailer | typeof PostOffice)[]) {
    const imports = [DistributedLockModule.forRoot({ store: memoryStore(), idempotency: { store } })];
    return Test.createTestingModule({ imports, providers }).compile();
  }

  it('complete their own record when they nest, each with its own retention', async () => {
    const service = new IdempotencyService({ store });
    const settle = jest.spyOn(store, 'settle');
    const claim = jest.spyOn(store, 'claim');
    const outer = { retentionMs: 1_000, unknownRetentionMs: 1_000 };
    const inner = { retentionMs: 5_000, unknownRetentionMs: 5_000 };
    const answer = await service.runOnce('outer', outer, () =>
      service.runOnce('inner', inner, () => 'inner'),
    );
    expect(answer).toBe('inner');
    const claimed = claim.mock.calls.map(([{ id, keepMs }]) => [id, keepMs]);
    const settled = settle.mock.calls.map(([id, , ending]) => [id, 'keepMs' in ending && ending.keepMs]);
    expect(claimed.map(([, keepMs]) => keepMs)).toEqual([1_000, 5_000]);
    expect(settled).toEqual([...claimed].reverse());
    expect(await service.runOnce('outer', outer, () => 'again')).toBe('inner');
    await service.close();
  });

  it('complete the record that they have claimed, also when the body changes its arguments', async () => {
    const app = await boot(Ledger);
    const ledger = app.get(Ledger);
    const order = (): Order => ({ id: '1', amount: 5 });
    await expect(ledger.book(order())).resolves.toBe('booked 1');
    await expect(ledger.book(order())).resolves.toBe('booked 1');
    expect(ledger.booked).toEqual(['1']);
    await app.close();
  });

  it('both run for one message that is delivered twice to two consumers, each of them once', async () => {
    const app = await boot(Ledger, Mailer);
    const message = { id: '1', amount: 5 };
    const deliver = () => Promise.all([app.get(Ledger).onPaid(message), app.get(Mailer).onPaid(message)]);
    await expect(deliver()).resolves.toEqual(['booked 1', 'mailed 1']);
    await expect(deliver()).resolves.toEqual(['booked 1', 'mailed 1']);
    expect([app.get(Ledger).booked, app.get(Mailer).sent]).toEqual([['1'], ['1']]);
    await app.close();
  });

  it('keep their answers through a renaming of class and method when they have a name', async () => {
    const before = await boot(Mailer);
    await before.get(Mailer).send({ id: '1', amount: 5 });
    const after = await boot(PostOffice);
    await expect(after.get(PostOffice).deliver({ id: '1', amount: 5 })).resolves.toBe('sent 1');
    expect(after.get(PostOffice).sent).toEqual([]);
    await Promise.all([before.close(), after.close()]);
  });
});
