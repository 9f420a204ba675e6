import { Redis, type RedisOptions } from 'ioredis';

import { jittered, LockConfigInvalidError } from '../core/index.js';
import { subscriberOf } from './borrowed-link.js';
import { Connecting, GOODBYE_MS } from './connecting.js';
import type { RedisClient, RedisLink, RedisSubscriber } from './redis-client.js';

const CONNECT_TIMEOUT_MS = 2_000;
const FIRST_RECONNECT_MS = 50;
const LONGEST_RECONNECT_MS = 1_000;
/** Connecting anew costs more than waiting for a server that is only slow. */
const SHORTEST_PATIENCE_MS = 1_000;

/** Nothing waits in such a client, and what was under way when the connection broke is settled and not sent again. */
const OPTIONS: RedisOptions = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: CONNECT_TIMEOUT_MS,
  disconnectTimeout: GOODBYE_MS,
  keepAlive: 10_000,
  retryStrategy: reconnectDelayMs,
  reconnectOnError: (error) => error.message.startsWith('READONLY'), // demoted: find the new master
};

/** @throws {LockConfigInvalidError} the url is not one of Redis */
export function ownLink(url: string): RedisLink {
  const address = addressOf(url);
  return new OwnLink(new Redis(url, OPTIONS), address);
}

/** To whoever the sentinels name; `where` says whom to ask for which master. */
export function ownSentinelLink(where: RedisOptions): RedisLink {
  const sentinels = (where.sentinels ?? []).map(({ host = '', port = 26_379 }) => `${host}:${port}`);
  const client = new Redis({
    ...where,
    ...OPTIONS,
    sentinelRetryStrategy: reconnectDelayMs,
    sentinelCommandTimeout: CONNECT_TIMEOUT_MS,
  });
  return new OwnLink(client, `${where.name ?? ''}, watched by the sentinels ${sentinels.join(', ')}`);
}

/**
 * A connection of our own.
 *
 * While the server is away, commands fail at once and the core decides whether to try again. It connects anew for ever,
 * and never sends a command twice.
 */
class OwnLink implements RedisLink {
  readonly #connecting: Connecting;
  #dropping = false;
  #handshake: NodeJS.Timeout | undefined;

  constructor(
    private readonly client: Redis,
    readonly address: string,
  ) {
    this.#connecting = new Connecting(client, address);
    // A server that is frozen accepts connections, and then does not answer the first question.
    client.on('connect', () => (this.#handshake = setTimeout(() => this.#drop(), CONNECT_TIMEOUT_MS)));
    client.on('ready', () => clearTimeout(this.#handshake));
    client.on('close', () => {
      clearTimeout(this.#handshake);
      this.#dropping = false;
    });
  }

  async send<T>(timeoutMs: number, command: (client: RedisClient) => Promise<T>): Promise<T> {
    if (this.client.status !== 'ready') await this.#connecting.ready(timeoutMs);
    // A connection that stays silent is half-open: without this, its successor would be opened minutes later.
    const drop = setTimeout(() => this.#drop(), Math.max(timeoutMs, SHORTEST_PATIENCE_MS));
    try {
      return await command(this.client);
    } finally {
      clearTimeout(drop);
    }
  }

  openSubscriber(): RedisSubscriber | undefined {
    return subscriberOf(this.client);
  }

  close(): Promise<void> {
    return this.#connecting.close();
  }

  /** Once for all commands that wait on the same connection. */
  #drop(): void {
    if (this.#dropping) return;
    this.#dropping = true;
    this.client.disconnect(true);
  }
}

export function reconnectDelayMs(attempt: number): number {
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
