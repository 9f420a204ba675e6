/** What the store uses of an ioredis client (5 or 6); any client with these three methods will do. */
export interface RedisClient {
  evalsha(sha1: string, numberOfKeys: number, ...keysAndArguments: string[]): Promise<unknown>;
  eval(script: string, numberOfKeys: number, ...keysAndArguments: string[]): Promise<unknown>;
  info(): Promise<string>;
}

/** The way to a server: a client, and whose it is. */
export interface RedisLink {
  /** For messages: says where the server is, and no password. */
  readonly address: string;
  /**
   * Sends one command.
   *
   * @throws at once while the connection is down; a command that was sent is never sent again
   */
  send<T>(timeoutMs: number, command: (client: RedisClient) => Promise<T>): Promise<T>;
  /** Closes what the link itself opened. */
  close(): Promise<void>;
}

/** A client of the application: how it connects, queues and retries is the application's choice. */
export function borrowedLink(client: RedisClient): RedisLink {
  return {
    address: 'the given Redis client',
    send: (_timeoutMs, command) => command(client),
    close: () => Promise.resolve(),
  };
}

export function messageOf(error: unknown): string {
  const { message } = (error ?? {}) as { readonly message?: unknown };
  return typeof message === 'string' ? message : '';
}
