import { Injectable, type DynamicModule } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  DistributedLockModule,
  Locked,
  memoryStore,
  type DistributedLockOptions,
  type DistributedLockOptionsFactory,
} from 'nestjs-distributed-lock';

function options(): DistributedLockOptions {
  return { store: memoryStore(), stores: { reports: () => memoryStore() } };
}

@Injectable()
class Settings implements DistributedLockOptionsFactory {
  createLockOptions(): DistributedLockOptions {
    return options();
  }
}

function appWith(...imports: NonNullable<DynamicModule['imports']>): Promise<TestingModule> {
  return Test.createTestingModule({ imports }).compile();
}

describe('a registration that is wrong fails at boot and says what to write', () => {
  it.each([
    ['nothing but the bare module', [DistributedLockModule], /registered nowhere.*forRoot\(\{ store \}\)/s],
    [
      'C065: a second registration',
      [DistributedLockModule.forRoot(options()), DistributedLockModule.forRoot(options())],
      /registered 2 times.*Keep one forRoot\(\).*stores: \{ name/s,
    ],
    [
      'no store',
      [DistributedLockModule.forRoot({} as DistributedLockOptions)],
      /store is missing.*memoryStore\(\)/,
    ],
    [
      'something else as store',
      [DistributedLockModule.forRoot({ store: 'redis://localhost' as never })],
      /store "default" is no lock store/,
    ],
    [
      'a second default store',
      [DistributedLockModule.forRoot({ store: memoryStore(), stores: { default: memoryStore() } })],
      /stores\.default/,
    ],
    [
      'an empty namespace',
      [DistributedLockModule.forRoot({ store: memoryStore(), namespace: '' })],
      /namespace is empty/,
    ],
    [
      'C042: a default of 0',
      [DistributedLockModule.forRoot({ store: memoryStore(), defaults: { ttlMs: 0 } })],
      /ttlMs is 0/,
    ],
    [
      'C042: a grace time in words',
      [DistributedLockModule.forRoot({ store: memoryStore(), shutdownGraceMs: '10s' as never })],
      /shutdownGraceMs is '10s'/,
    ],
    [
      'an asynchronous factory that forgets to return',
      [DistributedLockModule.forRootAsync({ useFactory: () => undefined as never })],
      /store is missing/,
    ],
  ])('%s', async (_, imports, message) => {
    await expect(appWith(...imports)).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringMatching(message),
    });
  });

  it('an asynchronous registration without a source, or with two', () => {
    expect(() => DistributedLockModule.forRootAsync({})).toThrow(/exactly one of useFactory, useClass/);
    expect(() => DistributedLockModule.forRootAsync({ useClass: Settings, useExisting: Settings })).toThrow(
      /exactly one/,
    );
  });

  it('no registration at all', async () => {
    @Injectable()
    class Forgotten {
      @Locked('x')
      async run(): Promise<void> {}
    }
    await expect(Test.createTestingModule({ providers: [Forgotten] }).compile()).rejects.toThrow(
      /Forgotten.*add DistributedLockModule\.forRoot\(\{ store \}\) to the imports of your root module, or LockTesting/s,
    );
  });

  it('an unknown store name, with the names that there are', async () => {
    @Injectable()
    class Misspelt {
      @Locked('x', { store: 'raports' })
      async run(): Promise<void> {}
    }
    const booting = Test.createTestingModule({
      imports: [DistributedLockModule.forRoot(options())],
      providers: [Misspelt],
    }).compile();
    await expect(booting).rejects.toThrow(
      /Misspelt\.run: There is no lock store "raports".*"default", "reports"/,
    );
  });

  it('C042: an option of @Locked that makes no sense, by its name', async () => {
    @Injectable()
    class Impatient {
      @Locked('x', { ttlMs: 0 })
      async run(): Promise<void> {}
    }
    const booting = Test.createTestingModule({
      imports: [DistributedLockModule.forRoot(options())],
      providers: [Impatient],
    }).compile();
    await expect(booting).rejects.toThrow(
      /@Locked on Impatient\.run: ttlMs is 0; write a number of milliseconds/,
    );
  });

  it('a store that cannot be used, whose connection is then closed', async () => {
    const store = memoryStore();
    const close = jest.fn(() => Promise.resolve());
    const broken = Object.assign(store, { open: () => Promise.reject(new Error('wrong password')), close });
    await expect(appWith(DistributedLockModule.forRoot({ store: broken }))).rejects.toThrow('wrong password');
    expect(close).toHaveBeenCalledTimes(1);
  });
});
