import { inspect } from 'node:util';

import type {
  ClaimAnswer,
  IdempotencyStore,
  RecordClaim,
  RecordEnding,
  RecordRenewal,
  StoredRecord,
  StoredResult,
} from '../../idempotency/index.js';
import {
  checkServer,
  linkToPlace,
  messageOf,
  ScriptRunner,
  type RedisLink,
  type RedisScript,
} from '../../redis-server/index.js';
import { ClaimBatches, type AskTogether } from './claim-batches.js';
import { CLAIM, FORGET, READ, RENEW, RESOLVE, SETTLE } from './idempotency-scripts.js';
import type { RedisStoreOptions } from './redis-store.js';

type WithoutReplicas<Options> = Options extends unknown ? Omit<Options, 'minReplicas'> : never;

/** As those of `redisStore()`, without `minReplicas`; `keyPrefix` is `idempotency:` unless given. */
export type RedisIdempotencyStoreOptions = WithoutReplicas<RedisStoreOptions>;

/** Shorter leases would be over before a busy network has answered. */
const MIN_LEASE_MS = 20;

/**
 * Idempotency records on one Redis server (5 or newer), on the master that sentinels name, or on a Redis Cluster: one round trip to claim, one to complete, one to replay.
 *
 * Redis deletes expired records by itself. It does not promise exactly one effect: a failover to a replica may lose a claim
 * or an answer that was acknowledged, and then the work is done again. Use a server that evicts nothing.
 *
 * @throws {LockConfigInvalidError} not exactly one of `url`, `client`, `sentinels` and `cluster`
 */
export function redisIdempotencyStore(options: RedisIdempotencyStoreOptions): IdempotencyStore {
  const { keyPrefix = 'idempotency:', allowEviction = false } = options;
  const link = linkToPlace(options, 'redisIdempotencyStore');
  return new RedisIdempotencyStore(link, keyPrefix, allowEviction);
}

class RedisIdempotencyStore implements IdempotencyStore {
  readonly kind = 'redis';
  readonly minLeaseMs = MIN_LEASE_MS;
  readonly purgesItself = true;
  readonly #scripts: ScriptRunner;
  readonly #claims: ClaimBatches;

  constructor(
    private readonly link: RedisLink,
    private readonly keyPrefix: string,
    private readonly allowEviction: boolean,
  ) {
    this.#scripts = new ScriptRunner(link);
    const ask: AskTogether = (keys, args, timeoutMs) => this.#scripts.run(CLAIM, keys, args, timeoutMs);
    this.#claims = new ClaimBatches(ask, link.isCluster === true ? 1 : undefined);
  }

  open(): Promise<void> {
    return checkServer(this.link, { allowEviction: this.allowEviction });
  }

  claim(claim: RecordClaim, timeoutMs: number): Promise<ClaimAnswer> {
    const key = this.#key(claim.id);
    return this.#claims.ask(key, termsOf(claim), timeoutMs, (reply) => {
      if (typeof reply === 'string') return { kind: 'done', result: resultOf(reply, '') };
      const [word, ...details] = Array.isArray(reply) ? (reply as string[]) : [];
      return answerOf(word, details) ?? unusable(key, strangeness(reply));
    });
  }

  async renew(
    { id, ownerId, leaseMs, keepMs }: RecordRenewal,
    timeoutMs: number,
  ): Promise<'renewed' | 'lost'> {
    const reply = await this.#run(RENEW, id, [ownerId, wholeMs(leaseMs), wholeMs(keepMs)], timeoutMs);
    return reply === 'renewed' ? 'renewed' : 'lost';
  }

  async settle(
    id: string,
    ownerId: string,
    ending: RecordEnding,
    timeoutMs: number,
  ): Promise<'settled' | 'refused'> {
    const uncounted = flag('countsAttempt' in ending && !ending.countsAttempt);
    const keepMs = 'keepMs' in ending ? wholeMs(ending.keepMs) : '0';
    const result = ending.kind === 'done' ? textsOf(ending.result) : [];
    const reply = await this.#run(
      SETTLE,
      id,
      [ownerId, ending.kind, uncounted, keepMs, ...result],
      timeoutMs,
    );
    return reply === 'settled' ? 'settled' : 'refused';
  }

  async resolve(
    id: string,
    result: StoredResult,
    keepMs: number,
    timeoutMs: number,
  ): Promise<'resolved' | 'refused'> {
    const reply = await this.#run(RESOLVE, id, [wholeMs(keepMs), ...textsOf(result)], timeoutMs);
    return reply === 'resolved' ? 'resolved' : 'refused';
  }

  async forget(id: string, timeoutMs: number): Promise<'forgotten' | 'running' | 'absent'> {
    const reply = await this.#run(FORGET, id, [], timeoutMs);
    if (reply === 'forgotten' || reply === 'running' || reply === 'absent') return reply;
    return unusable(this.#key(id), strangeness(reply));
  }

  async read(id: string, timeoutMs: number): Promise<StoredRecord | null> {
    const reply = await this.#run(READ, id, [], timeoutMs);
    return Array.isArray(reply) && reply.length > 0 ? recordOf(reply as string[]) : null;
  }

  /** Nothing to do: Redis does it. */
  purge(): Promise<number> {
    return Promise.resolve(0);
  }

  close(): Promise<void> {
    return this.link.close();
  }

  async #run(script: RedisScript, id: string, args: readonly string[], timeoutMs: number): Promise<unknown> {
    try {
      return await this.#scripts.run(script, [this.#key(id)], args, timeoutMs);
    } catch (error) {
      if (!messageOf(error).includes('WRONGTYPE')) throw error;
      return unusable(this.#key(id), 'it holds a value of another type', error);
    }
  }

  #key(id: string): string {
    return this.keyPrefix + id;
  }
}

function answerOf(word: string | undefined, details: readonly string[]): ClaimAnswer | undefined {
  const [first = '', second = '', third = ''] = details;
  switch (word) {
    case 'claimed':
      return { kind: 'claimed', fence: Number(first), attempt: Number(second), takenOver: third === '1' };
    case 'running':
      return { kind: 'running', retryAfterMs: Number(first) };
    case 'done':
      return { kind: 'done', result: resultOf(first, second) };
    case 'abandoned':
    case 'mismatch':
      return { kind: word };
    default:
      return undefined;
  }
}

function recordOf(reply: readonly string[]): StoredRecord {
  const [
    word = '',
    attempt,
    fence,
    fingerprint = '',
    label = '',
    leaseMs,
    expiresInMs,
    answer = '',
    how = '',
  ] = reply;
  const state = word === 'running' && Number(leaseMs) <= 0 ? 'lapsed' : (word as StoredRecord['state']);
  return {
    state,
    attempt: Number(attempt),
    fence: Number(fence),
    fingerprint: decodeURIComponent(fingerprint),
    label,
    leaseRemainingMs: state === 'running' ? Number(leaseMs) : null,
    expiresInMs: Number(expiresInMs),
    result: state === 'done' ? resultOf(answer, how) : null,
  };
}

/** How nearly every answer is kept: then it need not be written down, nor be cut off the text of a replay. */
const USUAL = { outcome: 'value', codec: 'typed-json/1' } as const;

/** Answer, and how it is kept. Outcome and codec are words of ours, without spaces. */
function textsOf({ outcome, codec, body }: StoredResult): string[] {
  return outcome === USUAL.outcome && codec === USUAL.codec ? [body] : [body, `${outcome} ${codec}`];
}

function resultOf(body: string, how: string): StoredResult {
  if (how === '') return { outcome: USUAL.outcome, codec: USUAL.codec, body };
  const [outcome, codec = ''] = how.split(' ');
  return { outcome: outcome as StoredResult['outcome'], codec, body };
}

function termsOf(claim: RecordClaim): string {
  const { ownerId, leaseMs, keepMs, takeOver, maxAttempts, label } = claim;
  const fingerprint = wordOf(claim.fingerprint);
  return `${fingerprint} ${ownerId} ${wholeMs(leaseMs)} ${wholeMs(keepMs)} ${flag(takeOver)} ${maxAttempts} ${label}`;
}

/** Our own fingerprints are without spaces; a caller's may have some. */
function wordOf(fingerprint: string): string {
  return /[\s%]/.test(fingerprint) ? fingerprint.replace(/[\s%]/g, encodeURIComponent) : fingerprint;
}

function strangeness(reply: unknown): string {
  const [word, error] = Array.isArray(reply) ? (reply as string[]) : [];
  if (word !== 'foreign') return `the answer was ${inspect(reply)}`;
  return error ?? 'it holds a hash that was not written as one';
}

function flag(value: boolean): string {
  return value ? '1' : '0';
}

/** Redis refuses fractions; a lease is better a little longer in the store than in its owner's mind. */
function wholeMs(durationMs: number): string {
  return String(Math.ceil(durationMs));
}

/** Never an answer like "done": whatever is there was not written as a record. */
function unusable(redisKey: string, what: string, cause?: unknown): never {
  throw new Error(
    `Redis key ${JSON.stringify(redisKey)} is not usable as an idempotency record: ${what}. ` +
      'Nothing was done; remove that key, or choose another keyPrefix.',
    { cause },
  );
}
