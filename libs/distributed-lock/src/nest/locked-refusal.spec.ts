import { StreamableFile } from '@nestjs/common';

import { currentLease, LockService } from '../core/index.js';
import { memoryStore } from '../stores/memory/index.js';
import { Locked } from './locked.decorator.js';
import { serveStandalone } from './locks-of-object.js';

class Billing {
  readonly ran: string[] = [];

  @Locked('invoice:<id>')
  async settle(id: string): Promise<string> {
    this.ran.push(id);
    return Promise.resolve(id);
  }
}

let locks: LockService;

beforeEach(() => {
  locks = new LockService({ stores: { default: memoryStore() } });
  serveStandalone(locks);
});

afterEach(async () => {
  serveStandalone(undefined);
  await locks.close(0);
});

describe('@Locked on what cannot be locked', () => {
  it('C045: an unbound call is refused and says what to write', async () => {
    const billing = new Billing();
    const { settle } = billing;
    await expect(settle('42')).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringMatching(
        /Billing\.settle was called without its object.*\(\) => this\.settle\(…\)/s,
      ),
    });
    await expect(settle.call({} as Billing, '42')).rejects.toThrow(/without its object/);
    expect(billing.ran).toEqual([]);
  });

  it('an object made with "new" outside Nest is refused, and LockTesting is named', async () => {
    serveStandalone(undefined);
    const billing = new Billing();
    await expect(billing.settle('42')).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      outcome: 'not-started',
      message: expect.stringMatching(/Billing\.settle.*"new" outside Nest.*LockTesting\.install\(\)/s),
    });
    expect(billing.ran).toEqual([]);
  });

  it('a property throws, as do an accessor and a decorator of the standard kind', () => {
    const decorate = Locked('x');
    class Plain {
      get value(): number {
        return 1;
      }
    }
    const descriptor = Object.getOwnPropertyDescriptor(Plain.prototype, 'value');
    expect(() => decorate(Plain.prototype, 'field')).toThrow(/Plain\.field: only a method can be locked/);
    expect(() => decorate(Plain.prototype, 'value', descriptor as never)).toThrow(
      /Plain\.value: only a method/,
    );
    expect(() => decorate(() => undefined, { kind: 'method' } as never)).toThrow(/experimentalDecorators/);
  });

  it('C024: a template that names no parameter throws while the class is loaded', () => {
    const declare = (): unknown => {
      class Minified {
        @Locked('invoice:<id>')
        async settle(a: string): Promise<string> {
          return Promise.resolve(a);
        }
      }
      return Minified;
    };
    expect(declare).toThrow(/Minified\.settle: "invoice:<id>".*there are: <a>/);
  });

  it('C127: a method that comes to a stream without saying so is refused, and the stream never runs', async () => {
    let started = false;
    class Streams {
      @Locked('invoice:<0>')
      inferred(_id: string): Promise<unknown> {
        return stream() as never;
      }
    }
    async function* stream(): AsyncGenerator<number> {
      started = true;
      yield await Promise.resolve(1);
    }
    await expect(new Streams().inferred('1')).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      outcome: 'unknown',
      message: expect.stringMatching(
        /Streams\.inferred.*after the lock has been given back.*returns: 'async-iterable'/s,
      ),
    });
    expect(started).toBe(false);
    expect(locks.busy).toBe(false);
  });

  it('C127: a promise of a StreamableFile is refused, since it is read after the release', async () => {
    class Files {
      @Locked('file:<0>')
      // eslint-disable-next-line @typescript-eslint/no-explicit-any -- the compiler would refuse it
      async download(_id: string): Promise<any> {
        return Promise.resolve(new StreamableFile(Buffer.from('x')));
      }
    }
    await expect(new Files().download('1')).rejects.toThrow(
      /Files\.download: it came to a StreamableFile.*content/s,
    );
  });

  it('C127: a plain value at run time becomes a promise of it, under the lock', async () => {
    class Untyped {
      @Locked('invoice:<0>')
      // eslint-disable-next-line @typescript-eslint/no-explicit-any -- as untyped code has it
      value(_id: string): any {
        return currentLease()?.key;
      }
    }
    const result: unknown = new Untyped().value('1');
    expect(result).toBeInstanceOf(Promise);
    await expect(result).resolves.toBe('invoice:1');
  });

  it('C127: a synchronous generator is refused while the class is loaded', () => {
    const declare = (): unknown => {
      class Generators {
        // @ts-expect-error -- a generator is neither a promise nor a stream
        @Locked('invoice:<id>')
        *walk(id: string): Generator<string> {
          yield id;
        }
      }
      return Generators;
    };
    expect(declare).toThrow(/Generators\.walk: a generator cannot wait.*async \*walk\(\)/);
  });
});
