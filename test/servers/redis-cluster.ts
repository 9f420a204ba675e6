import { freePort } from './free-port.js';
import { until } from './eventually.js';
import { redisCommand } from './redis-command.js';
import { startRedis, type RedisServer } from './redis-server.js';

/** Masters that share the slots among them. */
export interface RedisCluster {
  readonly nodes: readonly RedisServer[];
  /** What a client needs to find them all. */
  readonly addresses: readonly { readonly host: string; readonly port: number }[];
  slotOf(redisKey: string): Promise<number>;
  ownerOf(slot: number): Promise<RedisServer>;
  /**
   * Moves a slot with its keys to `target`, as `redis-cli --cluster reshard` does. `whileMoving` runs when the slot is on its
   * way: first before a key has moved, then when all have.
   */
  move(slot: number, target: RedisServer, whileMoving?: () => Promise<void>): Promise<void>;
  /** Resolves once all nodes, killed and started again, have found each other. */
  complete(): Promise<void>;
  stop(): Promise<void>;
}

const SLOTS = 16_384;
const MIGRATE_LIMIT_MS = '5000';

/** Three masters of one cluster of your own; `stop()` them when done. Needs Redis 7 or later. */
export async function startRedisCluster(): Promise<RedisCluster> {
  const nodes: RedisServer[] = [];
  const stop = async (): Promise<void> => void (await Promise.all(nodes.map((each) => each.stop())));
  try {
    for (let i = 0; i < 3; i += 1) nodes.push(await startNode());
    await join(nodes);
    return clusterOf(nodes, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

async function startNode(): Promise<RedisServer> {
  const bus = String(await freePort()); // by default 10 000 above its port, where systems take ports of clients from
  const settings = ['--cluster-enabled', 'yes', '--cluster-port', bus, '--cluster-node-timeout', '5000'];
  return startRedis({ settings: [...settings, '--cluster-require-full-coverage', 'no'] });
}

async function join(nodes: readonly RedisServer[]): Promise<void> {
  const [first] = nodes as [RedisServer];
  const bus = ((await redisCommand(first.port, 'CONFIG', 'GET', 'cluster-port')) as string[])[1] as string;
  for (const [i, { port }] of nodes.entries()) {
    const [from, to] = [i, i + 1].map((part) => Math.floor((SLOTS * part) / nodes.length)) as [
      number,
      number,
    ];
    await redisCommand(port, 'CLUSTER', 'ADDSLOTSRANGE', String(from), String(to - 1));
    await redisCommand(port, 'CLUSTER', 'SET-CONFIG-EPOCH', String(i + 1));
    if (i > 0) await redisCommand(port, 'CLUSTER', 'MEET', first.host, String(first.port), bus);
  }
  await complete(nodes);
}

/** Every node knows all, and that every slot is served. */
function complete(nodes: readonly RedisServer[]): Promise<void> {
  const whole = /cluster_state:ok[^]*cluster_slots_ok:16384[^]*cluster_known_nodes:3/;
  return until('every node knows all', async () => {
    const told = await Promise.all(nodes.map(({ port }) => redisCommand(port, 'CLUSTER', 'INFO')));
    return told.every((info) => whole.test(String(info)));
  });
}

function clusterOf(nodes: readonly RedisServer[], stop: () => Promise<void>): RedisCluster {
  const first = nodes[0] as RedisServer;
  const ownerOf = async (slot: number): Promise<RedisServer> => {
    for (const node of nodes) {
      const mine = await redisCommand(node.port, 'CLUSTER', 'NODES');
      if (ownsSlot(String(mine), slot)) return node;
    }
    throw new Error(`nobody has the slot ${slot}`);
  };
  return {
    nodes,
    addresses: nodes.map(({ host, port }) => ({ host, port })),
    slotOf: async (redisKey) => Number(await redisCommand(first.port, 'CLUSTER', 'KEYSLOT', redisKey)),
    ownerOf,
    complete: () => complete(nodes),
    async move(slot, target, whileMoving) {
      const source = await ownerOf(slot);
      await setSlot(target, slot, 'IMPORTING', await idOf(source));
      await setSlot(source, slot, 'MIGRATING', await idOf(target));
      await whileMoving?.();
      for (let keys = await keysIn(source, slot); keys.length > 0; keys = await keysIn(source, slot)) {
        await migrate(source, target, keys);
      }
      await whileMoving?.();
      await migrate(source, target, await keysIn(source, slot));
      const id = await idOf(target);
      for (const node of [target, source, ...nodes]) await setSlot(node, slot, 'NODE', id);
    },
    stop,
  };
}

/** By the line that a node writes about itself: slots, and ranges of them. */
function ownsSlot(nodesTold: string, slot: number): boolean {
  const mine = nodesTold.split('\n').find((line) => line.includes('myself')) ?? '';
  return mine
    .split(' ')
    .slice(8)
    .some((range) => {
      const [from, to = from] = range.split('-').map(Number) as [number, number?];
      return slot >= from && slot <= to;
    });
}

async function keysIn({ port }: RedisServer, slot: number): Promise<string[]> {
  return (await redisCommand(port, 'CLUSTER', 'GETKEYSINSLOT', String(slot), '100')) as string[];
}

/** One key at a time: between two of them, keys of one lock are on different nodes. */
async function migrate(source: RedisServer, target: RedisServer, keys: readonly string[]): Promise<void> {
  const address = [target.host, String(target.port)] as const;
  for (const key of keys) {
    await redisCommand(source.port, 'MIGRATE', ...address, key, '0', MIGRATE_LIMIT_MS);
  }
}

async function setSlot({ port }: RedisServer, slot: number, state: string, id: string): Promise<void> {
  await redisCommand(port, 'CLUSTER', 'SETSLOT', String(slot), state, id);
}

async function idOf({ port }: RedisServer): Promise<string> {
  return String(await redisCommand(port, 'CLUSTER', 'MYID'));
}
