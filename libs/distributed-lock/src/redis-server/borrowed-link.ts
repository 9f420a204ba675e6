import type { ClusterMaster, RedisClient, RedisLink, RedisSubscriber } from './redis-client.js';

/** What an ioredis `Redis` has beyond the commands. */
interface SingleClient extends RedisClient {
  readonly options: { readonly host?: string; readonly port?: number };
  duplicate(overrides: object): RedisSubscriber;
}

/** What an ioredis `Cluster` has beyond the commands. */
export interface ClusterClient extends RedisClient {
  readonly isCluster: boolean;
  nodes(role: 'master'): SingleClient[];
}

/** A lost subscription is begun anew by who needs it, on whatever server is right then. */
const SUBSCRIBER = {
  lazyConnect: true,
  enableOfflineQueue: true,
  maxRetriesPerRequest: 0,
  retryStrategy: null,
  connectTimeout: 2_000,
};

/** A client of the application: how it connects, queues and retries is the application's choice. */
export function borrowedLink(client: RedisClient): RedisLink {
  const own = {
    address: 'the given Redis client',
    send: <T>(_timeoutMs: number, command: (given: RedisClient) => Promise<T>): Promise<T> => command(client),
    close: () => Promise.resolve(),
  };
  if (isCluster(client)) {
    return {
      ...own,
      address: 'the given Redis Cluster client',
      isCluster: true,
      masters: () => mastersOf(client),
      openSubscriber: () => subscriberOfCluster(client),
    };
  }
  return { ...own, openSubscriber: () => subscriberOf(client) };
}

export function isCluster(client: RedisClient): client is ClusterClient {
  return 'isCluster' in client && client.isCluster === true;
}

export function mastersOf(cluster: ClusterClient): readonly ClusterMaster[] {
  return cluster.nodes('master').map((client) => {
    const { host = '', port = '' } = client.options;
    return { client, address: `${host}:${port}` };
  });
}

/** A copy of the client: with its credentials, on a connection of its own. */
export function subscriberOf(client: RedisClient): RedisSubscriber | undefined {
  if (!('duplicate' in client) || typeof client.duplicate !== 'function') return undefined;
  return (client as SingleClient).duplicate(SUBSCRIBER);
}

/** Any node will do: a cluster passes messages on to all of its nodes. */
export function subscriberOfCluster(cluster: ClusterClient): RedisSubscriber | undefined {
  const nodes = cluster.nodes('master');
  return nodes[Math.floor(Math.random() * nodes.length)]?.duplicate(SUBSCRIBER);
}
