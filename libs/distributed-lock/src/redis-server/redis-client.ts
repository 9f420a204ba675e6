/** One command after the other on one connection. */
export interface RedisPipeline {
  exec(): Promise<[error: Error | null, reply: unknown][] | null>;
}

/** What the store uses of an ioredis client (5 or 6); any client with the first three methods will do. */
export interface RedisClient {
  evalsha(sha1: string, numberOfKeys: number, ...keysAndArguments: string[]): Promise<unknown>;
  eval(script: string, numberOfKeys: number, ...keysAndArguments: string[]): Promise<unknown>;
  info(): Promise<string>;
  /** Needed for `minReplicas` only. */
  pipeline?(commands: unknown[][]): RedisPipeline;
}

/** A connection that hears messages and does nothing else. */
export interface RedisSubscriber {
  subscribe(...channels: string[]): Promise<unknown>;
  unsubscribe(...channels: string[]): Promise<unknown>;
  ping(): Promise<unknown>;
  on(event: 'message', listener: (channel: string) => void): unknown;
  on(event: 'error' | 'end', listener: () => void): unknown;
  disconnect(): void;
}

/** The way to a server, or to a cluster of them: a client, and whose it is. */
export interface RedisLink {
  /** For messages: says where the server is, and no password. */
  readonly address: string;
  /** True for a cluster: the keys of one command have to be in one slot, and slots are on different servers. */
  readonly isCluster?: boolean;
  /**
   * Sends one command.
   *
   * @throws at once while the connection is down; a command that was sent is never sent again
   */
  send<T>(timeoutMs: number, command: (client: RedisClient) => Promise<T>): Promise<T>;
  /** The masters of a cluster, as far as they are known. */
  masters?(): readonly ClusterMaster[];
  /** Undefined where the client cannot be copied, or knows no server yet. Who opens one disconnects it. */
  openSubscriber?(): RedisSubscriber | undefined;
  /** Closes what the link itself opened. */
  close(): Promise<void>;
}

export interface ClusterMaster {
  readonly address: string;
  readonly client: RedisClient;
}

export function messageOf(error: unknown): string {
  const { message } = (error ?? {}) as { readonly message?: unknown };
  return typeof message === 'string' ? message : '';
}
