import { Injectable, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import {
  currentLease,
  DistributedLockModule,
  Locked,
  LockEvents,
  LockService,
  memoryStore,
} from 'nestjs-distributed-lock';

@Injectable()
class Billing {
  @Locked('invoice:<id>', { waitMs: 0 })
  async settle(id: string): Promise<string> {
    return Promise.resolve(`${id} under ${currentLease()?.qualifiedKey}`);
  }
}

@Module({
  imports: [DistributedLockModule.forRoot({ store: () => memoryStore(), namespace: 'same' })],
  providers: [Billing],
})
class AppModule {}

describe('C065: two applications in one process', () => {
  it('share nothing when they are made from one module: neither locks, nor events, nor their end', async () => {
    const first = await Test.createTestingModule({ imports: [AppModule] }).compile();
    const second = await Test.createTestingModule({ imports: [AppModule] }).compile();
    expect(first.get(LockService)).not.toBe(second.get(LockService));

    const heard: string[] = [];
    second.get(LockEvents).subscribe(({ key }) => heard.push(key));
    const held = await first.get(LockService).acquire('invoice:1');
    await expect(first.get(Billing).settle('1')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    expect(heard).toEqual([]);
    await expect(second.get(Billing).settle('1')).resolves.toBe('1 under same:invoice:1');
    await held.release();

    await first.close();
    await expect(first.get(Billing).settle('1')).rejects.toMatchObject({ code: 'SHUTTING_DOWN' });
    await expect(second.get(Billing).settle('1')).resolves.toBe('1 under same:invoice:1');
    await second.close();
  });

  it('meet in a store that they are both given, and one of them closing ends no lease of the other', async () => {
    const store = memoryStore();
    const boot = async (): Promise<LockService> => {
      const imports = [DistributedLockModule.forRoot({ store })];
      return (await Test.createTestingModule({ imports }).compile()).get(LockService);
    };
    const [first, second] = await Promise.all([boot(), boot()]);
    const lease = await first.acquire('invoice:1');
    await second.close();
    await lease.extend(20_000);
    await expect(lease.release()).resolves.toBe('released');
    await first.close();
  });

  it('do not serve an object that both have been given', async () => {
    const shared = new Billing();
    const boot = (namespace: string): ReturnType<ReturnType<typeof Test.createTestingModule>['compile']> =>
      Test.createTestingModule({
        imports: [DistributedLockModule.forRoot({ store: memoryStore(), namespace })],
        providers: [{ provide: Billing, useValue: shared }],
      }).compile();
    const first = await boot('first');
    await expect(shared.settle('1')).resolves.toBe('1 under first:invoice:1');
    const second = await boot('second');
    await expect(shared.settle('1')).rejects.toThrow(/belongs to 2 running applications/);
    await first.close();
    await expect(shared.settle('1')).resolves.toBe('1 under second:invoice:1');
    await second.close();
  });
});
