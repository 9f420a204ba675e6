import { Injectable, SetMetadata } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { Idempotent } from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';

/*
 * What `@nestjs/graphql` 14 leaves on a method. It is not installed here: with its tools it takes 32 MB, and all that matters at
 * boot is these names.
 */
const DECORATORS = {
  Mutation: SetMetadata('graphql:resolver_type', 'Mutation'),
  Query: SetMetadata('graphql:resolver_type', 'Query'),
  Subscription: SetMetadata('graphql:resolver_type', 'Subscription'),
  ResolveField: SetMetadata('graphql:resolve_property', true),
  ResolveReference: SetMetadata('graphql:resolve_reference', true),
};
type Kind = keyof typeof DECORATORS;
const KINDS = Object.keys(DECORATORS) as Kind[];
const marked = (kind: Kind): MethodDecorator => DECORATORS[kind];

interface Input {
  readonly id: string;
}

async function boot(resolver: new () => object): Promise<TestingModule> {
  const imports = [LockTesting.module()];
  const module = await Test.createTestingModule({ imports, providers: [resolver] }).compile();
  return module.init();
}

/** Both orders of the two decorators. */
const PLACES = {
  above: (kind: Kind) => {
    @Injectable()
    class Payments {
      @marked(kind)
      @Idempotent()
      async pay(input: Input): Promise<string> {
        return Promise.resolve(input.id);
      }
    }
    return Payments;
  },
  below: (kind: Kind) => {
    @Injectable()
    class Payments {
      @Idempotent()
      @marked(kind)
      async pay(input: Input): Promise<string> {
        return Promise.resolve(input.id);
      }
    }
    return Payments;
  },
};

describe.each(['above', 'below'] as const)('a GraphQL resolver, with its own decorator %s', (place) => {
  it.each(KINDS)('is refused at boot without a key: %s', async (kind) => {
    await expect(boot(PLACES[place](kind))).rejects.toThrow(
      /@Idempotent on Payments\.pay: a GraphQL resolver gets no header of its own\. Write a key/,
    );
  });
});

describe('a GraphQL resolver with a written key', () => {
  it.each(KINDS)('is one effect for each key: %s', async (kind) => {
    let runs = 0;

    @Injectable()
    class Payments {
      @marked(kind)
      @Idempotent('payment:<input.id>')
      async pay(input: Input): Promise<object> {
        runs += 1;
        return Promise.resolve({ id: input.id, runs });
      }

      /** No resolver itself: its arguments are the key. */
      @Idempotent()
      async book(input: Input): Promise<string> {
        return Promise.resolve(input.id);
      }
    }
    const module = await boot(Payments);
    const payments = module.get(Payments);
    for (let turn = 0; turn < 2; turn += 1)
      await expect(payments.pay({ id: '1' })).resolves.toEqual({ id: '1', runs: 1 });
    await expect(payments.book({ id: '1' })).resolves.toBe('1');
    await module.close();
  });
});
