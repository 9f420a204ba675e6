import { setTimeout as pause } from 'node:timers/promises';

import { LockService, type Claim, type LockStore } from 'nestjs-distributed-lock';
import { consulStore, type ConsulStoreOptions } from 'nestjs-distributed-lock/consul';

import { startCommandProxy, startConsul, type CommandProxy, type ConsulServer } from '../servers/index.js';

export const PATIENCE_MS = 30_000;
export const claim: Claim = { key: 'invoice:1', ownerId: 'a', ttlMs: 200_000 };
/** What that key is called in Consul. */
export const NAME = 'lock/invoice.3A1';

export interface ConsulSession {
  readonly ID: string;
  readonly TTL: string;
}

/** One Consul server for the tests of a file, empty before each of them, and what they open on it, closed after each. */
export class ConsulPlace {
  readonly #ends: (() => Promise<void>)[] = [];

  private constructor(
    readonly server: ConsulServer,
    readonly store: LockStore,
  ) {}

  static async open(): Promise<ConsulPlace> {
    const server = await startConsul();
    return new ConsulPlace(server, consulStore({ url: server.url }));
  }

  async empty(): Promise<void> {
    for (const { ID } of await this.sessions()) await this.server.ask('PUT', `session/destroy/${ID}`);
    await this.server.ask('DELETE', 'kv/?recurse');
  }

  /** Also when the test failed. */
  async tidy(): Promise<void> {
    for (const end of this.#ends.splice(0).reverse()) await end();
  }

  async close(): Promise<void> {
    await this.store.close();
    await this.server.stop();
  }

  async proxied(): Promise<CommandProxy> {
    const proxy = await startCommandProxy(this.server.url);
    this.#ends.push(() => proxy.stop());
    return proxy;
  }

  storeAt(options: Partial<ConsulStoreOptions> = {}): LockStore {
    const opened = consulStore({ url: this.server.url, ...options });
    this.#ends.push(() => opened.close());
    return opened;
  }

  /** A service on a store of its own, which is closed with it. */
  async withService(
    { open = true, ...options }: Partial<ConsulStoreOptions> & { readonly open?: boolean },
    work: (service: LockService, acquired: { attempts: number }[]) => Promise<void>,
  ): Promise<void> {
    const store = consulStore({ url: this.server.url, ...options });
    const service = new LockService({ stores: { default: store } });
    const acquired: { attempts: number }[] = [];
    service.events.subscribe((event) => event.type === 'acquired' && acquired.push(event));
    if (open) await service.open();
    await work(service, acquired).finally(() => service.close(0));
  }

  /** Changes a key ten times a second, until it is told to stop. */
  keepWriting(key: string): () => Promise<void> {
    let writing = true;
    const stop = (): void => void (writing = false);
    const written = (async () => {
      while (writing)
        await this.server.ask('PUT', `kv/${key}`, String(performance.now())).then(() => pause(100));
    })();
    this.#ends.push(() => Promise.resolve(stop()));
    return () => (stop(), written);
  }

  /** Gives back what {@link claim} has taken, or another one. */
  release(store: LockStore, taken: Claim = claim): Promise<string> {
    return store.release({ ...taken, keepForMs: 0 }, PATIENCE_MS);
  }

  async sessions(): Promise<ConsulSession[]> {
    return (await this.server.ask('GET', 'session/list')) as ConsulSession[];
  }

  async keys(): Promise<string[]> {
    return ((await this.server.ask('GET', 'kv/?keys')) ?? []) as string[];
  }
}

/** What a command does, without whom or what it names. */
export const verbOf = (path: string): string => /^\/v1\/(kv|txn|session\/\w+)/.exec(path)?.[1] ?? path;
