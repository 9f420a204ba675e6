import type { ConnectionOptions } from 'node:tls';

import { LockConfigInvalidError } from '../core/index.js';
import { borrowedLink, isCluster } from './borrowed-link.js';
import { ownClusterLink } from './own-cluster-link.js';
import { ownLink, ownSentinelLink } from './own-redis-link.js';
import type { RedisClient, RedisLink } from './redis-client.js';

/** Where a Sentinel, or a node of a cluster, listens. */
export interface RedisAddress {
  readonly host: string;
  readonly port: number;
}

/** How to be let in where no url says it. */
export interface RedisAccess {
  readonly username?: string;
  readonly password?: string;
  /** TLS to the servers; `{}` for what Node trusts. Default: none. */
  readonly tls?: ConnectionOptions;
  /** Of the sentinels, which have users of their own. */
  readonly sentinelUsername?: string;
  readonly sentinelPassword?: string;
  /** TLS to the sentinels. */
  readonly sentinelTls?: ConnectionOptions;
}

/** One of: the address of a server; sentinels and the name of their master; nodes of a cluster; an application's client. */
export type RedisPlace =
  | {
      /** `redis://` or `rediss://`. The store opens one connection and closes it. */
      readonly url: string;
      readonly client?: undefined;
      readonly sentinels?: undefined;
      readonly cluster?: undefined;
    }
  | {
      /** An ioredis `Redis` or `Cluster`. It is used, and neither configured nor closed. */
      readonly client: RedisClient;
      readonly url?: undefined;
      readonly sentinels?: undefined;
      readonly cluster?: undefined;
    }
  | {
      /** The store connects to the master that they name, also after a failover. */
      readonly sentinels: readonly RedisAddress[];
      /** What they call the master. */
      readonly name: string;
      readonly access?: RedisAccess;
      readonly client?: undefined;
      readonly url?: undefined;
      readonly cluster?: undefined;
    }
  | {
      /** Some nodes of a Redis Cluster, from which the others are learned. */
      readonly cluster: readonly RedisAddress[];
      readonly access?: RedisAccess;
      readonly client?: undefined;
      readonly url?: undefined;
      readonly sentinels?: undefined;
    };

/**
 * The way to one server. `factory` is the function that the caller of this library wrote, for messages.
 *
 * @throws {LockConfigInvalidError} neither or both of `url` and `client`, or none of one single server
 */
export function linkTo(
  url: string | undefined,
  client: RedisClient | undefined,
  factory = 'redisStore',
): RedisLink {
  if ((url === undefined) === (client === undefined)) {
    throw new LockConfigInvalidError(
      `${factory}() needs either a url or a client: ${factory}({ url: "redis://…" }).`,
    );
  }
  if (client === undefined) return ownLink(url as string);
  if (isCluster(client)) {
    throw new LockConfigInvalidError(
      `${factory}() does not support a Redis Cluster; pass a client of a single server.`,
    );
  }
  return borrowedLink(client);
}

/**
 * The way to one server, to the master that sentinels name, or to a cluster.
 *
 * @throws {LockConfigInvalidError} not exactly one of `url`, `client`, `sentinels` and `cluster`, or one without a meaning
 */
export function linkToPlace(place: RedisPlace, factory: string): RedisLink {
  const { url, client, sentinels, cluster } = place;
  const given = [url, client, sentinels, cluster].filter((each) => each !== undefined);
  if (given.length !== 1) {
    throw new LockConfigInvalidError(
      `${factory}() needs either a url, a client, sentinels or a cluster: ${factory}({ url: "redis://…" }).`,
    );
  }
  if (client) return borrowedLink(client);
  if (sentinels) return sentinelLink(place, factory);
  if (cluster) return ownClusterLink(addresses('cluster', cluster, factory), { ...place.access });
  return ownLink(url);
}

function sentinelLink(
  place: RedisPlace & { readonly sentinels: readonly RedisAddress[] },
  factory: string,
): RedisLink {
  const { name, access: { sentinelTls, ...access } = {} } = place;
  const sentinels = addresses('sentinels', place.sentinels, factory);
  if (typeof name !== 'string' || name === '') {
    throw new LockConfigInvalidError(
      `${factory}() needs the name by which the sentinels know the master: { sentinels: […], name: "mymaster" }.`,
    );
  }
  const tls = sentinelTls && { sentinelTLS: sentinelTls, enableTLSForSentinelMode: true };
  return ownSentinelLink({ sentinels, name, ...access, ...tls });
}

function addresses(option: string, given: readonly RedisAddress[], factory: string): RedisAddress[] {
  const usable = given.length > 0 && given.every(({ host, port }) => host && port > 0);
  if (usable) return given.map(({ host, port }) => ({ host, port }));
  throw new LockConfigInvalidError(
    `${factory}() needs at least one address in ${option}: [{ host: "10.0.0.1", port: ${option === 'cluster' ? 6_379 : 26_379} }].`,
  );
}
