import { Redis } from 'ioredis';

import { jittered, LockConfigInvalidError } from '../core/index.js';
import type { RedisClient, RedisLink } from './redis-client.js';

const CONNECT_TIMEOUT_MS = 2_000;
const FIRST_RECONNECT_MS = 50;
const LONGEST_RECONNECT_MS = 1_000;
/** Connecting anew costs more than waiting for a server that is only slow. */
const SHORTEST_PATIENCE_MS = 1_000;
/** A server that is gone never answers the goodbye. */
const GOODBYE_MS = 500;

/** @throws {LockConfigInvalidError} the url is not one of Redis */
export function ownLink(url: string): RedisLink {
  return new OwnLink(url, addressOf(url));
}

/**
 * A connection of our own.
 *
 * Nothing waits in it: while the server is away, commands fail at once and the core decides whether to try again. It
 * connects anew for ever, and never sends a command twice.
 */
class OwnLink implements RedisLink {
  readonly #client: Redis;
  #connecting: Promise<void> | undefined;
  #lastError: Error | undefined;
  #dropping = false;

  constructor(
    url: string,
    readonly address: string,
  ) {
    this.#client = new Redis(url, {
      lazyConnect: true,
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0, // settles what was under way when the connection broke
      connectTimeout: CONNECT_TIMEOUT_MS,
      disconnectTimeout: GOODBYE_MS,
      keepAlive: 10_000,
      retryStrategy: reconnectDelayMs,
      reconnectOnError: (error) => error.message.startsWith('READONLY'), // demoted: find the new master
    });
    this.#client.on('error', (error: Error) => (this.#lastError = error));
    this.#client.on('ready', () => (this.#lastError = undefined));
    this.#client.on('close', () => (this.#dropping = false));
  }

  async send<T>(timeoutMs: number, command: (client: RedisClient) => Promise<T>): Promise<T> {
    if (this.#client.status !== 'ready') await this.#ready(timeoutMs);
    // A connection that stays silent is half-open: without this, its successor would be opened minutes later.
    const drop = setTimeout(() => this.#drop(), Math.max(timeoutMs, SHORTEST_PATIENCE_MS));
    try {
      return await command(this.#client);
    } finally {
      clearTimeout(drop);
    }
  }

  async close(): Promise<void> {
    const { status } = this.#client;
    const goodbye = status === 'ready' || status === 'connect' || status === 'connecting';
    const ended = goodbye ? this.#next(['end'], GOODBYE_MS * 2) : undefined;
    this.#client.disconnect();
    await ended;
  }

  /** Waits for a connection that is being made; one that has failed is not worth waiting for. */
  async #ready(timeoutMs: number): Promise<void> {
    if (this.#client.status === 'wait') this.#client.connect().catch(() => undefined); // told by the 'error' event
    if (this.#client.status === 'connecting' || this.#client.status === 'connect') {
      this.#connecting ??= this.#next(['ready', 'close', 'end'], timeoutMs).finally(
        () => (this.#connecting = undefined),
      );
      await this.#connecting;
    }
    if (this.#client.status === 'ready') return;
    throw new Error(`not connected to ${this.address}`, { cause: this.#lastError });
  }

  /** Once for all commands that wait on the same connection. */
  #drop(): void {
    if (this.#dropping) return;
    this.#dropping = true;
    this.#client.disconnect(true);
  }

  #next(events: readonly string[], timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const settle = (): void => {
        clearTimeout(timer);
        for (const event of events) this.#client.off(event, settle);
        resolve();
      };
      const timer = setTimeout(settle, timeoutMs);
      for (const event of events) this.#client.on(event, settle);
    });
  }
}

function reconnectDelayMs(attempt: number): number {
  const delayMs = Math.min(FIRST_RECONNECT_MS * 2 ** Math.min(attempt - 1, 10), LONGEST_RECONNECT_MS);
  return jittered(delayMs);
}

/** Host and database only: user, password and query stay out of messages. */
function addressOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed && /^rediss?:$/.test(parsed.protocol))
    return `${parsed.protocol}//${parsed.host}${parsed.pathname}`;
  throw new LockConfigInvalidError(
    'The url of redisStore() is none of Redis; write "redis://host:6379" or "rediss://user:password@host:6380/0", ' +
      'or pass your own ioredis instance as client.',
  );
}
