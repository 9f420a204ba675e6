import { LockConfigInvalidError } from '../../core/index.js';
import { linkTo, requireKeyPrefix, type RedisClient, type RedisLink } from '../../redis-server/index.js';

interface RedlockSettings {
  /**
   * Put before every Redis key, together with whatever prefix the clients have. Default `redlock:`. All processes that lock
   * the same things name the same servers and the same prefix.
   */
  readonly keyPrefix?: string;
  /** Accepts servers that may evict locks under memory pressure. Their holders learn of it at the next renewal. */
  readonly allowEviction?: boolean;
}

/** An odd number of servers, at least three: by their addresses, or through clients of the application's own. */
export type RedlockStoreOptions = RedlockSettings &
  (
    | {
        /** `redis://` or `rediss://`, one for each server. The store opens one connection to each and closes it. */
        readonly urls: readonly string[];
        readonly clients?: undefined;
      }
    | {
        /** One ioredis instance for each server. They are used, and neither configured nor closed. */
        readonly clients: readonly RedisClient[];
        readonly urls?: undefined;
      }
  );

/** A way to a server, and what to call it. */
export interface NamedLink {
  readonly link: RedisLink;
  readonly name: string;
}

/** @throws {LockConfigInvalidError} says which option to change, and into what */
export function linksOf(options: RedlockStoreOptions): readonly NamedLink[] {
  const { urls, clients } = options;
  if ((urls === undefined) === (clients === undefined)) {
    throw new LockConfigInvalidError(
      'redlockStore() needs either urls or clients: redlockStore({ urls: ["redis://a:6379", "redis://b:6379", "redis://c:6379"] }).',
    );
  }
  const servers: readonly unknown[] = urls ?? clients ?? [];
  requireOddNumber(servers.length);
  if (new Set(servers).size < servers.length) {
    throw new LockConfigInvalidError(
      'redlockStore() was given the same server twice. Its votes would count twice; name servers that fail independently.',
    );
  }
  if (urls) return urls.map((url) => named(linkTo(url, undefined, 'redlockStore')));
  return (clients ?? []).map((client, i) => ({
    link: linkTo(undefined, client, 'redlockStore'),
    name: `client ${i + 1}`,
  }));
}

/** @throws {LockConfigInvalidError} braces would take the place of the hash tag */
export function prefixOf({ keyPrefix = 'redlock:' }: RedlockStoreOptions): string {
  return requireKeyPrefix(keyPrefix);
}

function named(link: RedisLink): NamedLink {
  return { link, name: link.address };
}

function requireOddNumber(servers: number): void {
  if (servers >= 3 && servers % 2 === 1) return;
  throw new LockConfigInvalidError(
    `redlockStore() was given ${servers} servers; give it 3, 5 or 7. ` +
      'For one server use redisStore(); an even number survives no more failures than one server less.',
  );
}
