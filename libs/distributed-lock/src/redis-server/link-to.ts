import { LockConfigInvalidError } from '../core/index.js';
import { ownLink } from './own-redis-link.js';
import { borrowedLink, type RedisClient, type RedisLink } from './redis-client.js';

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
  if ('isCluster' in client && client.isCluster === true) {
    throw new LockConfigInvalidError(
      `${factory}() does not support a Redis Cluster; pass a client of a single server.`,
    );
  }
  return borrowedLink(client);
}
