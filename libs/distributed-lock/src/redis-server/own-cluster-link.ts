import { Cluster, type RedisOptions } from 'ioredis';

import { mastersOf, subscriberOfCluster } from './borrowed-link.js';
import { Connecting, GOODBYE_MS } from './connecting.js';
import { reconnectDelayMs } from './own-redis-link.js';
import type { ClusterMaster, RedisClient, RedisLink, RedisSubscriber } from './redis-client.js';

/** A node that has not answered for as long as any try lasts is worth another connection. */
const LONGEST_SILENCE_MS = 2_000;
/** While a slot moves, keys of one lock may be on two nodes for a moment. */
const TRY_AGAIN_MS = 50;
/** Each of these is a refusal that had no effect, so that the command may be sent again; not for ever. */
const MOST_REDIRECTIONS = 8;

/** To all nodes of a cluster, of which some are given. */
export function ownClusterLink(
  nodes: readonly { readonly host: string; readonly port: number }[],
  access: RedisOptions,
): RedisLink {
  const address = `the cluster of ${nodes.map(({ host, port }) => `${host}:${port}`).join(', ')}`;
  return new OwnClusterLink(new Cluster([...nodes], optionsFor(access)), address);
}

/** Connections of our own. As with one server: nothing waits for a cluster that is away, and no command is applied twice. */
class OwnClusterLink implements RedisLink {
  readonly isCluster = true;
  readonly #connecting: Connecting;

  constructor(
    private readonly cluster: Cluster,
    readonly address: string,
  ) {
    this.#connecting = new Connecting(cluster, address);
  }

  async send<T>(timeoutMs: number, command: (client: RedisClient) => Promise<T>): Promise<T> {
    if (this.cluster.status !== 'ready') await this.#connecting.ready(timeoutMs);
    return command(this.cluster);
  }

  masters(): readonly ClusterMaster[] {
    return mastersOf(this.cluster);
  }

  openSubscriber(): RedisSubscriber | undefined {
    return subscriberOfCluster(this.cluster);
  }

  close(): Promise<void> {
    return this.#connecting.close();
  }
}

function optionsFor(access: RedisOptions): ConstructorParameters<typeof Cluster>[1] {
  return {
    lazyConnect: true,
    enableOfflineQueue: true, // for nodes that are being connected: each is, when it is first needed
    maxRedirections: MOST_REDIRECTIONS,
    retryDelayOnFailover: 0, // a command that was under way when its connection broke may have been applied
    retryDelayOnTryAgain: TRY_AGAIN_MS,
    retryDelayOnClusterDown: TRY_AGAIN_MS,
    slotsRefreshTimeout: LONGEST_SILENCE_MS,
    clusterRetryStrategy: reconnectDelayMs,
    redisOptions: {
      ...access,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      connectTimeout: LONGEST_SILENCE_MS,
      socketTimeout: LONGEST_SILENCE_MS,
      disconnectTimeout: GOODBYE_MS,
      keepAlive: 10_000,
    },
  };
}
