import { Injectable, Logger, type Type } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { CurrentLease, currentLease, Locked, type Lease } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';

/** A class decorator of another package that puts functions of its own in the place of all methods. */
function wrapAll(
  call: (method: (...args: unknown[]) => unknown, self: unknown, args: unknown[]) => unknown,
): ClassDecorator {
  return ({ prototype }) => {
    for (const name of Object.getOwnPropertyNames(prototype)) {
      const descriptor = Object.getOwnPropertyDescriptor(prototype, name) as PropertyDescriptor;
      if (name === 'constructor') continue;
      const method = descriptor.value as (...args: unknown[]) => unknown;
      const value = function (this: unknown, ...args: unknown[]): unknown {
        return call(method, this, args);
      };
      Object.defineProperty(prototype, name, { ...descriptor, value });
    }
  };
}

function boot(...providers: Type[]): Promise<TestingModule> {
  return Test.createTestingModule({ imports: [LockTesting.module()], providers }).compile();
}

describe('at boot, C077', () => {
  let warned: jest.SpyInstance;

  beforeEach(() => {
    warned = jest.spyOn(Logger.prototype, 'warn').mockImplementation(() => undefined);
  });

  afterEach(() => warned.mockRestore());

  it('a locked method in whose place another decorator has put its own function is reported, once', async () => {
    @Injectable()
    @wrapAll((method, self, args) => method.apply(self, args))
    class Wrapped {
      @Locked('x')
      async run(): Promise<string | undefined> {
        return Promise.resolve(currentLease()?.key);
      }
    }
    @Injectable()
    class Derived extends Wrapped {}
    const module = await boot(Wrapped, Derived);
    await module.init();
    expect(warned.mock.calls).toEqual([
      [
        expect.stringMatching(
          /^Wrapped\.run has @Locked, and another decorator has put a function of its own/,
        ),
      ],
    ]);
    // This one calls the method that it found, so the lock is still there.
    await expect(module.get(Wrapped).run()).resolves.toBe('x');
    await module.close();
  });

  it('methods that are as @Locked left them are not reported', async () => {
    @Injectable()
    class Fine {
      @Locked('x')
      @Locked('y')
      async run(): Promise<void> {}

      @Locked('z')
      static async runAll(): Promise<void> {}
    }
    const module = await boot(Fine);
    await module.init();
    expect(warned).not.toHaveBeenCalled();
    await module.close();
  });
});

describe('at boot, @CurrentLease', () => {
  it('on a method without @Locked is refused, and on one with it is not', async () => {
    @Injectable()
    class Empty {
      async run(@CurrentLease() lease?: Lease): Promise<Lease | undefined> {
        return Promise.resolve(lease);
      }
    }
    @Injectable()
    class Filled {
      @Locked('x')
      async run(@CurrentLease() lease?: Lease): Promise<string | undefined> {
        return Promise.resolve(lease?.key);
      }
    }
    await expect(boot(Empty)).rejects.toThrow(/Empty\.run has a @CurrentLease\(\) parameter and no @Locked/);
    const module = await boot(Filled);
    await expect(module.get(Filled).run()).resolves.toBe('x');
    await module.close();
  });
});
