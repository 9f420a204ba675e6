import { inspect } from 'node:util';

import {
  LockConfigInvalidError,
  type Busy,
  type Claim,
  type Grant,
  type LockStore,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewalAnswer,
} from '../../core/index.js';
import {
  checkServer,
  linkTo,
  messageOf,
  redisKeys,
  requireKeyPrefix,
  ScriptRunner,
  type RedisClient,
  type RedisLink,
  type RedisScript,
} from '../../redis-server/index.js';
import { ACQUIRE, RELEASE, RENEW } from './redis-scripts.js';

interface RedisStoreSettings {
  /** Put before every Redis key, together with whatever prefix the client has. Default `lock:`. */
  readonly keyPrefix?: string;
  /** Accepts a server that may evict locks under memory pressure. Their holders learn of it at the next renewal. */
  readonly allowEviction?: boolean;
}

/** Either the address of a server, or a client of the application's own. */
export type RedisStoreOptions = RedisStoreSettings &
  (
    | {
        /** `redis://` or `rediss://`. The store opens one connection and closes it. */
        readonly url: string;
        readonly client?: undefined;
      }
    | {
        /** An ioredis instance. It is used, and neither configured nor closed. */
        readonly client: RedisClient;
        readonly url?: undefined;
      }
  );

/** Keeps the last token for this long after the last grant, so that keys do not pile up. */
const FENCE_RETENTION_MS = 30 * 24 * 60 * 60 * 1_000;
/** Shorter leases would be over before a busy network has answered. */
const MIN_TTL_MS = 20;

/**
 * Locks on one Redis server (5 or newer), one round trip to take a lock and one to give it back.
 *
 * Tokens rise as long as Redis keeps its data, and also when it loses them, unless its clock was set back by more than
 * the time since the last grant. A failover to a replica may grant a lock twice: the fence refuses the older owner.
 *
 * @throws {LockConfigInvalidError} neither or both of `url` and `client`, or a prefix with braces
 */
export function redisStore(options: RedisStoreOptions): LockStore {
  const { url, client, keyPrefix = 'lock:', allowEviction = false } = options;
  return new RedisStore(linkTo(url, client), requireKeyPrefix(keyPrefix), allowEviction);
}

class RedisStore implements LockStore {
  readonly kind = 'redis';
  readonly minTtlMs = MIN_TTL_MS;
  readonly keepsReleasedKeys = true;
  readonly #scripts: ScriptRunner;

  constructor(
    private readonly link: RedisLink,
    private readonly keyPrefix: string,
    private readonly allowEviction: boolean,
  ) {
    this.#scripts = new ScriptRunner(link);
  }

  open(): Promise<void> {
    return checkServer(this.link, this.allowEviction);
  }

  async tryAcquire({ key, ownerId, ttlMs }: Claim, timeoutMs: number): Promise<Grant | Busy> {
    const { owner, fence } = redisKeys(this.keyPrefix, key);
    const times = [ttlMs, ttlMs + FENCE_RETENTION_MS].map(wholeMs);
    const reply = await this.#run(ACQUIRE, [owner, fence], [ownerId, ...times], timeoutMs);
    const [word, detail] = Array.isArray(reply) ? (reply as unknown[]) : [];
    const number = Number(detail);
    if (word === 'granted' && Number.isSafeInteger(number) && number > 0)
      return { kind: 'granted', token: number };
    if (word === 'busy') return { kind: 'busy', retryAfterMs: number >= 0 ? number : null };
    throw unexpected(owner, word === 'foreign' ? String(detail) : `the answer was ${inspect(reply)}`);
  }

  async renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    if (claims.length === 0) return [];
    const keys = claims.map(({ key }) => redisKeys(this.keyPrefix, key).owner);
    const grants = claims.flatMap(({ ownerId, ttlMs }) => [ownerId, wholeMs(ttlMs)]);
    const reply = await this.#run(RENEW, keys, grants, timeoutMs);
    const answers = Array.isArray(reply) ? (reply as unknown[]) : [];
    return claims.map((_, i) => (answers[i] === 'renewed' ? 'renewed' : 'lost'));
  }

  async release({ key, ownerId, keepForMs }: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    const { owner } = redisKeys(this.keyPrefix, key);
    const reply = await this.#run(RELEASE, [owner], [ownerId, wholeMs(keepForMs)], timeoutMs);
    return reply === 'released' ? 'released' : 'not-owner';
  }

  close(): Promise<void> {
    return this.link.close();
  }

  async #run(script: RedisScript, keys: string[], args: string[], timeoutMs: number): Promise<unknown> {
    try {
      return await this.#scripts.run(script, keys, args, timeoutMs);
    } catch (error) {
      if (!messageOf(error).includes('WRONGTYPE')) throw error;
      throw unexpected(keys[0] as string, 'it, or its fence, holds a value of another type', error);
    }
  }
}

/** Redis refuses fractions; a lease is better a little longer in the store than in its holder's mind. */
function wholeMs(durationMs: number): string {
  return String(Math.ceil(durationMs));
}

/** Never an answer like "busy": whatever is there was not written by a lock. */
function unexpected(redisKey: string, what: string, cause?: unknown): Error {
  return new Error(
    `Redis key ${JSON.stringify(redisKey)} is not usable as a lock: ${what}. ` +
      'Nothing was locked; remove that key, or choose another keyPrefix.',
    { cause },
  );
}
