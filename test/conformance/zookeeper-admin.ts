import { createClient, type Client } from 'node-zookeeper-client';

import { zookeeperWord, type TestServer } from '../servers/index.js';

/** Looks into a ZooKeeper past the library, with another client; one connection for each command. */
export class ZooKeeperAdmin {
  constructor(private readonly server: Pick<TestServer, 'host' | 'port'>) {}

  remove(path: string): Promise<void> {
    return this.#with((client, done) => client.remove(path, done));
  }

  create(path: string, data: string): Promise<void> {
    return this.#with((client, done) => client.create(path, Buffer.from(data), (error) => done(error)));
  }

  has(path: string): Promise<boolean> {
    return this.#with((client, done) => client.exists(path, (error, stat) => done(error, Boolean(stat))));
  }

  children(path: string): Promise<string[]> {
    return this.#with((client, done) => client.getChildren(path, (error, names) => done(error, names)));
  }

  /** What the server says to one of its four-letter words. */
  word(word: string): Promise<string> {
    return zookeeperWord(this.server.host, this.server.port, word);
  }

  #with<T>(command: (client: Client, done: (error: unknown, answer?: T) => void) => void): Promise<T> {
    const client = createClient(`${this.server.host}:${this.server.port}`, { retries: 3 });
    const answer = new Promise<T>((resolve, reject) => {
      const done = (error: unknown, found?: T): void =>
        error instanceof Error ? reject(error) : resolve(found as T);
      client.once('connected', () => command(client, done));
      client.connect();
    });
    return answer.finally(() => client.close());
  }
}
