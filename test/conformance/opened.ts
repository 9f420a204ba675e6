import { LockService, type LockStore } from 'nestjs-distributed-lock';

/** What a test opens: closed after it, the last first, also when it failed. */
export class Opened {
  readonly #ends: (() => Promise<unknown>)[] = [];

  /** For the tests of the block that makes it. */
  constructor() {
    afterEach(async () => {
      for (const end of this.#ends.splice(0).reverse()) await end();
    });
  }

  atEnd(end: () => Promise<unknown>): void {
    this.#ends.push(end);
  }

  /** Or a proxy, which is stopped alike. */
  server<T extends { stop(): Promise<void> }>(server: T): T {
    this.atEnd(() => server.stop());
    return server;
  }

  store(store: LockStore): LockStore {
    this.atEnd(() => store.close());
    return store;
  }

  /** Closes its store as well. */
  service(store: LockStore): LockService {
    const service = new LockService({ stores: { default: store } });
    this.atEnd(() => service.close(0));
    return service;
  }
}
