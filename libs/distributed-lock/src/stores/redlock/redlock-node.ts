import { inspect } from 'node:util';

import { systemClock, withinTime, type Claim, type KeyWatch, type ReleaseRequest } from '../../core/index.js';
import {
  messageOf,
  redisKeys,
  ReleaseWatch,
  ScriptRunner,
  type RedisLink,
  type RedisScript,
} from '../../redis-server/index.js';
import { ADMIT, GRANT, LOOK, RAISE, RELEASE, RENEW } from './redlock-scripts.js';

/** No vote: nothing was heard, or nothing that can be used. What was asked may have been done. */
export interface Silent {
  readonly kind: 'silent';
  readonly cause: unknown;
}
/** No vote, and nothing was done: the server has lost its data, or never had any. */
export interface Outside {
  readonly kind: 'outside';
}
export interface Granted {
  readonly kind: 'granted';
  readonly fence: number;
  /** The owner had the key already. */
  readonly again: boolean;
}
export interface Taken {
  readonly kind: 'busy';
  readonly holder: string;
  /** Negative when the server cannot tell. */
  readonly remainingMs: number;
}
export type GrantAnswer = Granted | Taken | Outside | Silent;
export type RaiseAnswer = { readonly kind: 'raised' | 'refused' } | Outside | Silent;
export type RenewAnswer =
  { readonly kind: 'renewals'; readonly renewed: readonly boolean[] } | Outside | Silent;
export type ReleaseVote = { readonly kind: 'released' | 'not-owner' } | Silent;
export type LookAnswer =
  | { readonly kind: 'member'; readonly servers: number; readonly high: number; readonly longestMs: number }
  | { readonly kind: 'joining'; readonly id: string; readonly clockUs: number }
  | Silent;
export type AdmitAnswer = { readonly kind: 'member' | 'changed' } | Silent;

/** Keeps the last fence for this long after the last grant, so that keys do not pile up. */
const FENCE_RETENTION_MS = 30 * 24 * 60 * 60 * 1_000;

/** One of the servers. Its answers are believed only where they are exact; none of its commands ever rejects. */
export class RedlockNode {
  readonly #scripts: ScriptRunner;
  readonly #self: string;
  readonly #watch: ReleaseWatch;
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(
    readonly link: RedisLink,
    readonly name: string,
    private readonly keyPrefix: string,
    private readonly servers: number,
    private readonly onOutside: (node: RedlockNode) => void,
  ) {
    this.#scripts = new ScriptRunner(link);
    this.#self = `${keyPrefix}server`;
    this.#watch = new ReleaseWatch(link);
  }

  grant({ key, ownerId, ttlMs }: Claim, timeoutMs: number): Promise<GrantAnswer> {
    const { owner, fence } = redisKeys(this.keyPrefix, key);
    const times = [ttlMs, ttlMs + FENCE_RETENTION_MS].map(wholeMs);
    return this.#ask(
      GRANT,
      [this.#self, owner, fence],
      [this.#size, ownerId, ...times],
      timeoutMs,
      (reply) => {
        const [word, detail, third] = reply;
        if (word === 'granted' && isToken(detail))
          return { kind: 'granted', fence: Number(detail), again: third === 'again' };
        if (word === 'busy') return { kind: 'busy', holder: String(detail), remainingMs: Number(third) };
        throw notUsable(owner, word === 'foreign' ? String(detail) : `the answer was ${inspect(reply)}`);
      },
    );
  }

  raise({ key, ownerId, ttlMs }: Claim, token: number, timeoutMs: number): Promise<RaiseAnswer> {
    const { owner, fence } = redisKeys(this.keyPrefix, key);
    const args = [this.#size, ownerId, String(token), wholeMs(ttlMs + FENCE_RETENTION_MS)];
    return this.#ask(RAISE, [this.#self, owner, fence], args, timeoutMs, ([word]) => ({
      kind: word === 'raised' ? 'raised' : 'refused',
    }));
  }

  renew(claims: readonly Claim[], timeoutMs: number): Promise<RenewAnswer> {
    const owners = claims.map(({ key }) => redisKeys(this.keyPrefix, key).owner);
    const grants = claims.flatMap(({ ownerId, ttlMs }) => [ownerId, wholeMs(ttlMs)]);
    return this.#ask(RENEW, [this.#self, ...owners], [this.#size, ...grants], timeoutMs, (reply) => ({
      kind: 'renewals',
      renewed: claims.map((_, i) => reply[i] === 'renewed'),
    }));
  }

  /** Those who wait for the key are told of it. */
  release({ key, ownerId, keepForMs }: ReleaseRequest, timeoutMs: number): Promise<ReleaseVote> {
    const { owner } = redisKeys(this.keyPrefix, key);
    return this.#release(owner, [ownerId, wholeMs(keepForMs), channelOf(owner)], timeoutMs);
  }

  /**
   * Takes back a vote that was not enough. Nobody is told: whoever waits for the key would ask for the same vote, take it back
   * in turn, and so on.
   */
  withdraw({ key, ownerId }: Claim, timeoutMs: number): Promise<ReleaseVote> {
    return this.#release(redisKeys(this.keyPrefix, key).owner, [ownerId, '0', ''], timeoutMs);
  }

  async look(newId: string, timeoutMs: number): Promise<LookAnswer> {
    const answer = await this.#ask(LOOK, [this.#self], [newId], timeoutMs, (reply): LookAnswer => {
      const [word, first, second, third] = reply;
      if (word === 'joining') return { kind: 'joining', id: String(first), clockUs: Number(second) };
      const [servers, high, longestMs] = [first, second, third].map(Number) as [number, number, number];
      if (word === 'member') return { kind: 'member', servers, high, longestMs };
      throw notUsable(this.#self, `the answer was ${inspect(reply)}`);
    });
    return answer.kind === 'outside' ? { kind: 'silent', cause: answer } : answer;
  }

  async admit(id: string, high: number, longestMs: number, timeoutMs: number): Promise<AdmitAnswer> {
    const args = [this.#size, id, String(high), wholeMs(longestMs)];
    const answer = await this.#ask(ADMIT, [this.#self], args, timeoutMs, ([word]): AdmitAnswer => ({
      kind: word === 'member' ? 'member' : 'changed',
    }));
    return answer.kind === 'outside' ? { kind: 'changed' } : answer;
  }

  /** Hears when the key is released on this server. */
  watch(key: string, wake: () => void): KeyWatch {
    return this.#watch.watch(channelOf(redisKeys(this.keyPrefix, key).owner), wake);
  }

  close(): Promise<void> {
    this.#watch.close();
    return this.link.close();
  }

  /** Waits for answers that are still under way: without them a lock may stay taken on this server for its ttl. */
  async settled(): Promise<void> {
    await Promise.all(this.#underWay);
  }

  async #release(owner: string, args: readonly string[], timeoutMs: number): Promise<ReleaseVote> {
    const answer = await this.#ask(RELEASE, [owner], args, timeoutMs, ([word]) => ({
      kind: word === 'released' ? ('released' as const) : ('not-owner' as const),
    }));
    return answer.kind === 'outside' ? { kind: 'not-owner' } : answer;
  }

  get #size(): string {
    return String(this.servers);
  }

  #ask<A>(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    timeoutMs: number,
    read: (reply: readonly unknown[]) => A,
  ): Promise<A | Outside | Silent> {
    const answer = this.#answer(script, keys, args, timeoutMs, read).catch((cause: unknown): Silent => ({
      kind: 'silent',
      cause,
    }));
    this.#underWay.add(answer);
    void answer.then(() => this.#underWay.delete(answer));
    return answer;
  }

  async #answer<A>(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    timeoutMs: number,
    read: (reply: readonly unknown[]) => A,
  ): Promise<A | Outside> {
    const command = (): Promise<unknown> => this.#scripts.run(script, keys, args, timeoutMs);
    try {
      const reply = await withinTime(systemClock, timeoutMs, command);
      const words = Array.isArray(reply) ? (reply as unknown[]) : [];
      return words[0] === 'outside' ? this.#outside(words[1]) : read(words);
    } catch (error) {
      if (!messageOf(error).includes('WRONGTYPE')) throw error;
      throw notUsable(keys.at(-1) as string, 'it, or its fence, holds a value of another type', error);
    }
  }

  #outside(servers: unknown): Outside {
    if (servers !== '') throw new Error(wrongSize(String(servers), this.servers));
    this.onOutside(this);
    return { kind: 'outside' };
  }
}

export function wrongSize(servers: string | number, here: number): string {
  return (
    `it is one of ${servers} servers, and ${here} are given here. Name the same servers in every process; for other ` +
    'servers choose another keyPrefix.'
  );
}

function channelOf(owner: string): string {
  return `${owner}:released`;
}

function isToken(value: unknown): boolean {
  return typeof value === 'string' && Number.isSafeInteger(Number(value)) && Number(value) > 0;
}

/** Redis refuses fractions; a lease is better a little longer in the store than in its holder's mind. */
function wholeMs(durationMs: number): string {
  return String(Math.ceil(durationMs));
}

/** Never an answer like "busy": whatever is there was not written by a lock. */
function notUsable(redisKey: string, what: string, cause?: unknown): Error {
  return new Error(
    `Redis key ${JSON.stringify(redisKey)} is not usable as a lock: ${what}. Remove that key, or choose another keyPrefix.`,
    { cause },
  );
}
