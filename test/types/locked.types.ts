/*
 * Checked by the compiler (npm run typecheck), never run: what @Locked accepts, and what it refuses. An unused
 * "@ts-expect-error" is itself an error, so each line below stands for one that does not compile.
 */
import type { Readable } from 'node:stream';

import { applyDecorators, Controller, Get, Post, type StreamableFile } from '@nestjs/common';
import { Locked, lockKey, type KeyPart, type Lease, CurrentLease } from 'nestjs-distributed-lock';
import type { BehaviorSubject, Observable } from 'rxjs';

declare function something<T>(): T;

interface Invoice {
  readonly id: string;
}

const InvoiceKey = lockKey('invoice:<id>');

export class Accepted {
  @Locked('invoice:<id>')
  async byTemplate(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  @Locked(InvoiceKey, { ttlMs: 30_000, waitMs: 0, minHoldMs: 1_000, maxHoldMs: 60_000, scope: 'global' })
  async byLockKey(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  @Locked((id: string) => `invoice:${id}`)
  async byFunction(id: string, amount: number): Promise<string> {
    return Promise.resolve(id + amount);
  }

  @Locked((invoice: Invoice) => InvoiceKey({ id: invoice.id }))
  generic<T extends Invoice>(invoice: T): Promise<T> {
    return Promise.resolve(invoice);
  }

  @Locked(() => 'nightly')
  private secretly(count = 1): Promise<number> {
    return Promise.resolve(count);
  }

  @Locked((id: string) => id)
  protected async carefully(id: string): Promise<void> {
    await this.secretly(id.length);
  }

  @Locked('tenant:<id>')
  static async statically(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  @Locked((id: string | undefined) => `invoice:${id ?? 'all'}`)
  async optional(id?: string): Promise<string | undefined> {
    return Promise.resolve(id);
  }

  @Locked((...ids: string[]) => ids.join())
  async collecting(...ids: string[]): Promise<number> {
    return Promise.resolve(ids.length);
  }

  @Locked('invoice:<id>')
  async withLease(id: string, @CurrentLease() lease?: Lease): Promise<string> {
    return Promise.resolve(id + String(lease?.token));
  }

  @Locked('feed:<0>')
  observable(_id: string): Observable<number> {
    return something();
  }

  @Locked('feed:<0>')
  async *generator(_id: string): AsyncGenerator<number, string> {
    yield await Promise.resolve(1);
    return '';
  }

  @Locked('feed:<0>', { returns: 'async-iterable' })
  iterable(_id: string): AsyncIterable<number> {
    return something();
  }

  @Locked('feed:<0>')
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- as untyped code has it
  untyped(_id: string): any {
    return something();
  }

  @Locked('invoice:<0>', { onBusy: 'skip' })
  async skipVoid(_id: string): Promise<void> {
    return Promise.resolve();
  }

  @Locked('invoice:<0>', { onBusy: 'skip' })
  async skipUndefined(_id: string): Promise<string | undefined> {
    return Promise.resolve(undefined);
  }

  @Locked('feed:<0>', { onBusy: 'skip' })
  skipStream(_id: string): Observable<number> {
    return something();
  }

  @Locked('invoice:<0>', { onBusy: (busy, id: string) => `${busy.key} ${id} ${busy.retryAfterMs ?? 0}` })
  async instead(_id: string): Promise<string> {
    return Promise.resolve('');
  }

  @Locked('invoice:<0>', {
    onBusy: (busy) => {
      throw busy;
    },
  })
  async thrower(_id: string): Promise<string> {
    return Promise.resolve('');
  }

  @Locked('invoice:<0>', { onBusy: (): Promise<string> => Promise.resolve('busy') })
  async promised(_id: string): Promise<string> {
    return Promise.resolve('');
  }
}

export class Repository<Row extends Invoice> {
  @Locked((row: Invoice) => row.id)
  save(row: Row): Promise<Row> {
    return Promise.resolve(row);
  }

  @Locked('rows')
  async all(): Promise<Row[]> {
    return Promise.resolve([]);
  }
}

const LockedPost = (path: string): MethodDecorator => applyDecorators(Post(path), Locked('invoice:<0>'));

@Controller()
export class Handlers {
  @LockedPost('pay')
  async pay(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  @Get()
  @Locked('all')
  async list(): Promise<string[]> {
    return Promise.resolve([]);
  }
}

export class RefusedKeys {
  // @ts-expect-error -- the key function takes a string, the method a number
  @Locked((id: string) => id)
  async otherType(_id: number): Promise<void> {}

  // @ts-expect-error -- the key function takes a parameter that the method has not
  @Locked((id: string, tenant: string) => id + tenant)
  async fewer(_id: string): Promise<void> {}

  // @ts-expect-error -- the parameter may be undefined, and the key function does not take that
  @Locked((id: string) => id)
  async optional(_id?: string): Promise<void> {}

  // @ts-expect-error -- one key: several come with another version
  @Locked((ids: string[]) => ids)
  async several(_ids: string[]): Promise<void> {}

  // @ts-expect-error -- a key is text
  @Locked((id: number) => id)
  async numeric(_id: number): Promise<void> {}

  // @ts-expect-error -- arrays of keys are not accepted
  @Locked(['a', 'b'])
  async listed(): Promise<void> {}
}

export class RefusedResults {
  // @ts-expect-error -- no promise
  @Locked('x')
  nothing(): void {}

  // @ts-expect-error -- no promise
  @Locked('x')
  plain(): string {
    return '';
  }

  // @ts-expect-error -- only sometimes a promise
  @Locked('x')
  sometimes(): string | Promise<string> {
    return '';
  }

  // @ts-expect-error -- the caller would get a promise and not undefined
  @Locked('x')
  orUndefined(): Promise<string> | undefined {
    return undefined;
  }

  // @ts-expect-error -- nobody knows what
  @Locked('x')
  unknown(): unknown {
    return something();
  }

  // @ts-expect-error -- the caller would get an Observable and not a subject
  @Locked('x')
  subject(): BehaviorSubject<number> {
    return something();
  }

  // @ts-expect-error -- the caller would get a generator and not a Readable
  @Locked('x')
  readable(): Readable {
    return something();
  }

  // @ts-expect-error -- the stream would outlive the lock
  @Locked('x')
  async promisedStream(): Promise<Observable<number>> {
    return Promise.resolve(something());
  }

  // @ts-expect-error -- the stream would outlive the lock
  @Locked('x')
  async promisedIterable(): Promise<AsyncIterable<number>> {
    return Promise.resolve(something());
  }

  // @ts-expect-error -- the stream would outlive the lock
  @Locked('x')
  async promisedFile(): Promise<StreamableFile> {
    return Promise.resolve(something());
  }

  // @ts-expect-error -- a generator cannot wait
  @Locked('x')
  *iterator(): Generator<number> {
    yield 1;
  }
}

export class RefusedOptions {
  // @ts-expect-error -- the result may not be undefined
  @Locked('x', { onBusy: 'skip' })
  async skipped(): Promise<string> {
    return Promise.resolve('');
  }

  // @ts-expect-error -- onBusy returns something else than the method
  @Locked('x', { onBusy: () => 7 })
  async instead(): Promise<string> {
    return Promise.resolve('');
  }

  // @ts-expect-error -- onBusy takes other parameters than the method
  @Locked('x', { onBusy: (_busy, id: string) => id })
  async arguments(_id: number): Promise<string> {
    return Promise.resolve('');
  }

  // @ts-expect-error -- there is no such option
  @Locked('x', { ttl: 5, waitMs: 1 })
  async unknownOption(): Promise<void> {}

  // @ts-expect-error -- a number of milliseconds
  @Locked('x', { ttlMs: '5s' })
  async text(): Promise<void> {}

  // @ts-expect-error -- the modes of a lock come with another version
  @Locked('x', { mode: 'shared' })
  async shared(): Promise<void> {}
}

const part: KeyPart = 42;
export const rendered: string = InvoiceKey({ id: part });
// @ts-expect-error -- the template has another placeholder
export const misspelt: string = InvoiceKey({ nr: part });
