/* Checked by the compiler (npm run typecheck), never run: what @AcceptFencingToken accepts, and what it refuses. */
import { Controller, Param, Post } from '@nestjs/common';
import { AcceptFencingToken, lockKey } from 'nestjs-distributed-lock';
import type { Observable } from 'rxjs';

declare function something<T>(): T;

interface Job {
  readonly data: { readonly id: string; readonly fencingToken?: number };
}

const InvoiceKey = lockKey('invoice:<id>');

@Controller()
export class Accepted {
  @Post(':id')
  @AcceptFencingToken(InvoiceKey)
  async byLockKey(@Param('id') id: string): Promise<string> {
    return Promise.resolve(id);
  }

  @AcceptFencingToken((job: Job) => InvoiceKey({ id: job.data.id }), {
    from: (job: Job) => job.data.fencingToken,
    store: { elsewhere: 'billing' },
    required: false,
  })
  async byFunction(job: Job, attempt: number): Promise<string> {
    return Promise.resolve(job.data.id + attempt);
  }

  @AcceptFencingToken('feed:<0>')
  observable(_id: string): Observable<number> {
    return something();
  }
}

export class Refused {
  // @ts-expect-error the key takes other parameters than the method
  @AcceptFencingToken((job: Job) => job.data.id)
  async otherKey(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  // @ts-expect-error "from" takes other parameters than the method
  @AcceptFencingToken('invoice:<id>', { from: (job: Job) => job.data.fencingToken })
  async otherSource(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  // @ts-expect-error a token is a number or its digits
  @AcceptFencingToken('invoice:<id>', { from: (id: string) => [id] })
  async noToken(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  // @ts-expect-error the databases are asked before the method runs, so its result cannot be there at once
  @AcceptFencingToken('invoice:<id>')
  atOnce(id: string): string {
    return id;
  }
}
