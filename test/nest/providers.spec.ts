import { Injectable, Module, Scope, type Provider } from '@nestjs/common';
import { ContextIdFactory, ModuleRef } from '@nestjs/core';
import { Test, type TestingModule } from '@nestjs/testing';
import { currentLease, DistributedLockModule, Locked, memoryStore } from 'nestjs-distributed-lock';

@Injectable()
class Billing {
  @Locked('invoice:<id>')
  async settle(id: string): Promise<string> {
    return Promise.resolve(`${id} under ${currentLease()?.qualifiedKey}`);
  }
}

@Injectable()
class SpecialBilling extends Billing {}

/** As `settle` runs when its lock is that of the application under test. */
const SETTLED = '1 under app:invoice:1';

function locksOf(namespace = 'app'): ReturnType<typeof DistributedLockModule.forRoot> {
  return DistributedLockModule.forRoot({ store: memoryStore(), namespace });
}

async function bootWith(...providers: Provider[]): Promise<TestingModule> {
  const module = await Test.createTestingModule({ imports: [locksOf()], providers }).compile();
  return module.init();
}

describe('a locked method of a provider that Nest made', () => {
  let module: TestingModule;

  afterEach(() => module.close());

  it.each<[string, Provider]>([
    ['from a class', Billing],
    ['from useClass', { provide: Billing, useClass: SpecialBilling }],
    ['from useFactory', { provide: Billing, useFactory: () => new Billing() }],
    [
      'from an asynchronous factory',
      { provide: Billing, useFactory: async () => Promise.resolve(new Billing()) },
    ],
    ['from useValue', { provide: Billing, useValue: new Billing() }],
  ])('locks, %s', async (_, provider) => {
    module = await bootWith(provider);
    await expect(module.get(Billing).settle('1')).resolves.toBe(SETTLED);
  });

  it.each<[string, Provider]>([
    ['a class for each request', { provide: Billing, useClass: Billing, scope: Scope.REQUEST }],
    ['a transient class', { provide: Billing, useClass: Billing, scope: Scope.TRANSIENT }],
    [
      'a factory for each request',
      { provide: Billing, useFactory: () => new Billing(), scope: Scope.REQUEST },
    ],
    ['a transient factory', { provide: Billing, useFactory: () => new Billing(), scope: Scope.TRANSIENT }],
  ])('locks, from %s', async (_, provider) => {
    module = await bootWith(provider);
    const [one, other] = await Promise.all([
      module.resolve(Billing, ContextIdFactory.create()),
      module.resolve(Billing, ContextIdFactory.create()),
    ]);
    expect(one).not.toBe(other);
    await expect(one.settle('1')).resolves.toBe(SETTLED);
    await expect(other.settle('1')).resolves.toBe(SETTLED);
  });

  it('locks in the place of an overridden provider', async () => {
    class Replacement extends Billing {}
    for (const override of ['useValue', 'useClass', 'useFactory'] as const) {
      const builder = Test.createTestingModule({ imports: [locksOf()], providers: [Billing] });
      const overriding = builder.overrideProvider(Billing);
      if (override === 'useValue') overriding.useValue(new Replacement());
      if (override === 'useClass') overriding.useClass(Replacement);
      if (override === 'useFactory') overriding.useFactory({ factory: () => new Replacement() });
      module = await (await builder.compile()).init();
      const billing = module.get(Billing);
      expect(billing).toBeInstanceOf(Replacement);
      await expect(billing.settle('1')).resolves.toBe(SETTLED);
      if (override !== 'useFactory') await module.close();
    }
  });

  it('locks in an object that the module reference creates', async () => {
    module = await bootWith();
    const billing = await module.get(ModuleRef).create(SpecialBilling);
    await expect(billing.settle('1')).resolves.toBe(SETTLED);
  });

  it('locks in a frozen object of a class, and refuses a frozen value at boot', async () => {
    const frozen = Object.freeze(new Billing());
    await expect(bootWith({ provide: Billing, useValue: frozen })).rejects.toThrow(
      /Billing\.settle.*frozen.*useClass/s,
    );
    module = await bootWith(Billing);
  });
});

describe('a locked method that is called too early', () => {
  it('C120: fails loudly in a constructor, and does not run', async () => {
    const failures: unknown[] = [];
    const ran: string[] = [];
    @Injectable()
    class Hasty {
      readonly done = this.run().catch((error: unknown) => failures.push(error));

      @Locked('x')
      async run(): Promise<void> {
        return Promise.resolve(void ran.push('x'));
      }
    }
    const module = await bootWith(Hasty);
    await module.get(Hasty).done;
    expect(failures).toEqual([
      expect.objectContaining({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringMatching(/Hasty\.run.*in its own constructor/s),
      }),
    ]);
    expect(ran).toEqual([]);
    await module.close();
  });

  it('C120: works in onModuleInit, also of what a factory made', async () => {
    class Early {
      key: string | undefined;

      @Locked('early')
      async onModuleInit(): Promise<void> {
        return Promise.resolve(void (this.key = currentLease()?.key));
      }
    }
    const module = await bootWith({ provide: Early, useFactory: () => new Early() });
    expect(module.get(Early).key).toBe('early');
    await module.close();
  });
});

describe('a locked static method', () => {
  @Injectable()
  class Jobs {
    @Locked('job:<name>')
    static async run(name: string): Promise<string> {
      return Promise.resolve(`${name} under ${currentLease()?.qualifiedKey}`);
    }
  }

  @Injectable()
  class SpecialJobs extends Jobs {}

  @Module({ imports: [locksOf('first')], providers: [SpecialJobs] })
  class FirstModule {}

  @Module({ imports: [locksOf('second')], providers: [Jobs] })
  class SecondModule {}

  it('locks in the application that its class is a provider of, also through a subclass', async () => {
    const module = await Test.createTestingModule({ imports: [FirstModule] }).compile();
    await expect(Jobs.run('a')).resolves.toBe('a under first:job:a');
    await expect(SpecialJobs.run('a')).resolves.toBe('a under first:job:a');
    await module.close();
  });

  it('C065: is refused while two running applications have its class, and belongs to the other when one closed', async () => {
    const first = await Test.createTestingModule({ imports: [FirstModule] }).compile();
    const second = await Test.createTestingModule({ imports: [SecondModule] }).compile();
    await expect(Jobs.run('a')).rejects.toThrow(/Jobs\.run belongs to 2 running applications/);
    await first.close();
    await expect(Jobs.run('a')).resolves.toBe('a under second:job:a');
    await second.close();
    await expect(Jobs.run('a')).rejects.toMatchObject({ code: 'SHUTTING_DOWN' });
  });

  it('is refused when its class is no provider, and without its class', async () => {
    class Nowhere {
      @Locked('job:<0>')
      static async run(_name: string): Promise<void> {}
    }
    await expect(Nowhere.run('a')).rejects.toThrow(/Nowhere\.run.*List the class under "providers"/s);
    const { run } = Jobs;
    await expect(run('a')).rejects.toThrow(/Jobs\.run was called without its object/);
  });
});
