import { AsyncLocalStorage } from 'node:async_hooks';

/** A call of `fenced(repository)`: TypeORM builds its statement as always, and the guard is put into it. */
export interface FencedCall {
  /** As users write it, e.g. `delete()`. */
  readonly path: string;
}

const storage = new AsyncLocalStorage<FencedCall>();

export function currentFencedCall(): FencedCall | undefined {
  return storage.getStore();
}

export function runFencedCall<T>(call: FencedCall, work: () => T): T {
  return storage.run(call, work);
}
