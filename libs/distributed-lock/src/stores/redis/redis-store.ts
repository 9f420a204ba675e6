import { inspect } from 'node:util';

import {
  LockConfigInvalidError,
  type Busy,
  type Claim,
  type Grant,
  type KeyWatch,
  type LockStore,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewalAnswer,
} from '../../core/index.js';
import {
  checkServer,
  linkToPlace,
  messageOf,
  redisKeys,
  ReleaseWatch,
  requireKeyPrefix,
  ScriptRunner,
  type ConfirmedReply,
  type RedisClient,
  type RedisLink,
  type RedisPlace,
  type RedisScript,
} from '../../redis-server/index.js';
import { ACQUIRE, RELEASE, RENEW } from './redis-scripts.js';

interface RedisStoreSettings {
  /** Put before every Redis key, together with whatever prefix the client has. Default `lock:`. */
  readonly keyPrefix?: string;
  /** Accepts a server that may evict locks under memory pressure. Their holders learn of it at the next renewal. */
  readonly allowEviction?: boolean;
  /**
   * How many replicas have to confirm a grant, and each of its renewals, before it counts. Default 0: a failover may lose
   * grants. With fewer, a grant is given back and the store counts as unavailable.
   *
   * It narrows the gap and does not close it: a replica that has not confirmed may be the one that is promoted.
   */
  readonly minReplicas?: number;
}

/** Where Redis is: a server, the master that sentinels name, a cluster, or a client of the application's own. */
export type RedisStoreOptions = RedisStoreSettings & RedisPlace;

/** Keeps the last token for this long after the last grant, so that keys do not pile up. */
const FENCE_RETENTION_MS = 30 * 24 * 60 * 60 * 1_000;
/** Shorter leases would be over before a busy network has answered. */
const MIN_TTL_MS = 20;
const MOST_RENEWED_TOGETHER = 100;

/**
 * Locks on one Redis server (5 or newer), on the master that sentinels name, or on a Redis Cluster: one round trip to take a
 * lock and one to give it back.
 *
 * Tokens rise as long as Redis keeps its data, and also when it loses them, unless its clock was set back by more than
 * the time since the last grant. A failover to a replica may grant a lock twice: the fence refuses the older owner.
 *
 * @throws {LockConfigInvalidError} not exactly one of `url`, `client`, `sentinels` and `cluster`, a prefix with braces, or
 * `minReplicas` with a client that has no pipelines
 */
export function redisStore(options: RedisStoreOptions): LockStore {
  const { keyPrefix = 'lock:', allowEviction = false, minReplicas = 0 } = options;
  requireReplicas(minReplicas, options.client);
  return new RedisStore(linkToPlace(options, 'redisStore'), {
    keyPrefix: requireKeyPrefix(keyPrefix),
    allowEviction,
    minReplicas,
  });
}

class RedisStore implements LockStore {
  readonly kind = 'redis';
  readonly minTtlMs = MIN_TTL_MS;
  readonly keepsReleasedKeys = true;
  readonly renewsTogether: number;
  readonly #scripts: ScriptRunner;
  readonly #watch: ReleaseWatch;

  constructor(
    private readonly link: RedisLink,
    private readonly settings: Required<RedisStoreSettings>,
  ) {
    this.#scripts = new ScriptRunner(link);
    this.#watch = new ReleaseWatch(link);
    this.renewsTogether = link.isCluster === true ? 1 : MOST_RENEWED_TOGETHER;
  }

  open(): Promise<void> {
    return checkServer(this.link, this.settings);
  }

  async tryAcquire({ key, ownerId, ttlMs }: Claim, timeoutMs: number): Promise<Grant | Busy> {
    const { owner, fence } = redisKeys(this.settings.keyPrefix, key);
    const times = [ttlMs, ttlMs + FENCE_RETENTION_MS].map(wholeMs);
    const { reply, replicas } = await this.#confirmed(
      ACQUIRE,
      [owner, fence],
      [ownerId, ...times],
      timeoutMs,
    );
    const [word, detail] = Array.isArray(reply) ? (reply as unknown[]) : [];
    const number = Number(detail);
    if (word === 'granted' && Number.isSafeInteger(number) && number > 0) {
      this.#requireConfirmed(owner, replicas);
      return { kind: 'granted', token: number };
    }
    if (word === 'busy') return { kind: 'busy', retryAfterMs: number >= 0 ? number : null };
    throw unexpected(owner, word === 'foreign' ? String(detail) : `the answer was ${inspect(reply)}`);
  }

  async renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    if (claims.length === 0) return [];
    if (claims.length > 1 && this.link.isCluster === true) {
      return (await Promise.all(claims.map((claim) => this.renew([claim], timeoutMs)))).flat();
    }
    const keys = claims.map(({ key }) => redisKeys(this.settings.keyPrefix, key).owner);
    const grants = claims.flatMap(({ ownerId, ttlMs }) => [ownerId, wholeMs(ttlMs)]);
    const { reply, replicas } = await this.#confirmed(RENEW, keys, grants, timeoutMs);
    const answers = Array.isArray(reply) ? (reply as unknown[]) : [];
    if (answers.includes('renewed')) this.#requireConfirmed(keys.join(', '), replicas);
    return claims.map((_, i) => (answers[i] === 'renewed' ? 'renewed' : 'lost'));
  }

  async release({ key, ownerId, keepForMs }: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    const { owner } = redisKeys(this.settings.keyPrefix, key);
    const args = [ownerId, wholeMs(keepForMs), channelOf(owner)];
    const reply = await this.#naming(owner, () => this.#scripts.run(RELEASE, [owner], args, timeoutMs));
    return reply === 'released' ? 'released' : 'not-owner';
  }

  watch(key: string, wake: () => void): KeyWatch {
    return this.#watch.watch(channelOf(redisKeys(this.settings.keyPrefix, key).owner), wake);
  }

  close(): Promise<void> {
    this.#watch.close();
    return this.link.close();
  }

  #confirmed(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    timeoutMs: number,
  ): Promise<ConfirmedReply> {
    const { minReplicas } = this.settings;
    return this.#naming(keys[0] as string, async () => {
      if (minReplicas > 0) return this.#scripts.runConfirmed(script, keys, args, timeoutMs, minReplicas);
      return { reply: await this.#scripts.run(script, keys, args, timeoutMs), replicas: 0 };
    });
  }

  /** What the master alone knows may be gone in a moment: neither held nor free, until the core has given it back. */
  #requireConfirmed(redisKey: string, replicas: number): void {
    const { minReplicas } = this.settings;
    if (replicas >= minReplicas) return;
    throw new Error(
      `Redis key ${JSON.stringify(redisKey)} was written on the master, but only ${replicas} of ${minReplicas} replicas ` +
        'have confirmed it in time. It does not count as held; check the replicas, or lower minReplicas.',
    );
  }

  async #naming<T>(redisKey: string, command: () => Promise<T>): Promise<T> {
    try {
      return await command();
    } catch (error) {
      if (!messageOf(error).includes('WRONGTYPE')) throw error;
      throw unexpected(redisKey, 'it, or its fence, holds a value of another type', error);
    }
  }
}

/** No key, so no client puts its prefix before it. */
function channelOf(owner: string): string {
  return `${owner}:released`;
}

/** @throws {LockConfigInvalidError} it is no number of replicas, or there is no way to ask for them */
function requireReplicas(minReplicas: number, client: RedisClient | undefined): void {
  if (!Number.isInteger(minReplicas) || minReplicas < 0) {
    throw new LockConfigInvalidError(
      `minReplicas is ${String(minReplicas)}; write a whole number, 0 for none.`,
    );
  }
  if (minReplicas > 0 && client && typeof client.pipeline !== 'function') {
    throw new LockConfigInvalidError('minReplicas needs a client with pipelines; pass an ioredis instance.');
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
