import { AsyncResource } from 'node:async_hooks';

import type { Lease } from '../core/index.js';
import type { CallOutcome, LockedCall } from './locked-call.js';
import { wrongKind } from './result-kind.js';

/** The body of a locked iteration: it lasts until somebody ends it, and every step runs in its context. */
interface OpenBody {
  readonly lease: Lease;
  readonly inside: <T>(step: () => T) => T;
  readonly end: () => void;
  readonly fail: (cause: unknown) => void;
}

/**
 * Takes the lock at the first `next()` and gives it back at the end, at `return()` and at `throw()`. Between two steps it
 * stays held, also when the consumer never comes back: `maxHoldMs` bounds that.
 */
export async function* lockedIterable(call: LockedCall): AsyncGenerator<unknown, unknown, unknown> {
  const { opened, outcome } = openBody(call);
  const body = await Promise.race([opened, outcome.then(notRun)]);
  if ('instead' in body) return yield* insteadOf(body.instead);
  try {
    return (yield* new Steps(iteratorOf(call, body), body)) as unknown;
  } catch (cause) {
    body.fail(cause);
    throw cause;
  } finally {
    body.end();
    await outcome; // the lock has been given back, or this is where its loss is told
  }
}

function openBody(call: LockedCall): { opened: Promise<OpenBody>; outcome: Promise<CallOutcome<void>> } {
  let open!: (body: OpenBody) => void;
  const opened = new Promise<OpenBody>((resolve) => (open = resolve));
  const outcome = call.underLock(
    (lease) =>
      new Promise<void>((end, fail) => {
        const context = new AsyncResource('LockedIteration');
        open({ lease, inside: (step) => context.runInAsyncScope(step), end, fail });
      }),
  );
  outcome.catch(() => undefined); // whoever iterates awaits it; until then it is nobody's unhandled rejection
  return { opened, outcome };
}

function notRun(outcome: CallOutcome<void>): { readonly instead: unknown } {
  return { instead: outcome.ran ? undefined : outcome.instead };
}

function iteratorOf(call: LockedCall, { inside, lease }: OpenBody): AsyncIterator<unknown> {
  const source = inside(() => call.invoke(lease));
  if (typeof source !== 'object' || source === null || !(Symbol.asyncIterator in source)) {
    throw wrongKind(call.site.label, 'async-iterable', source);
  }
  return inside(() => (source as AsyncIterable<unknown>)[Symbol.asyncIterator]());
}

/** The source's steps, each in the context of the hold, none of them once the lease is lost. */
class Steps implements AsyncIterableIterator<unknown> {
  readonly throw?: (error?: unknown) => Promise<IteratorResult<unknown>>;

  constructor(
    private readonly source: AsyncIterator<unknown>,
    private readonly body: OpenBody,
  ) {
    if (source.throw) this.throw = (error) => this.#step(() => source.throw?.(error));
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(value?: unknown): Promise<IteratorResult<unknown>> {
    return this.#step(() => this.source.next(value));
  }

  async return(value?: unknown): Promise<IteratorResult<unknown>> {
    const ended = await this.body.inside(() => this.source.return?.(value));
    return ended ?? { done: true, value };
  }

  async #step(step: () => Promise<IteratorResult<unknown>> | undefined): Promise<IteratorResult<unknown>> {
    await this.#refuseIfLost();
    const result = await this.body.inside(step);
    await this.#refuseIfLost();
    return result ?? { done: true, value: undefined };
  }

  async #refuseIfLost(): Promise<void> {
    const loss = this.body.lease.lossError();
    if (!loss) return;
    await this.return().catch(() => undefined); // lets the source clean up; the loss is what counts
    throw loss;
  }
}

async function* insteadOf(instead: unknown): AsyncGenerator<unknown, unknown, unknown> {
  const isIterable = typeof instead === 'object' && instead !== null && Symbol.asyncIterator in instead;
  if (!isIterable) return instead;
  return (yield* instead as AsyncIterable<unknown>) as unknown;
}
