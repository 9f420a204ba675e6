import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { startServer, type TestServer } from './private-server.js';
import { until } from './eventually.js';
import { redisCommand } from './redis-command.js';
import { ping, startRedis, type RedisServer } from './redis-server.js';

/** A master with replicas, and the sentinels that watch them. */
export interface RedisSentinel {
  /** What the sentinels call the master. */
  readonly name: string;
  readonly sentinels: readonly { readonly host: string; readonly port: number }[];
  readonly servers: readonly RedisServer[];
  /** Whom the sentinels name. */
  master(): Promise<RedisServer>;
  /** Resolves once another server than `old` is named, and is a master. */
  failedOver(old: RedisServer): Promise<RedisServer>;
  /** Resolves once `count` replicas follow the master. */
  followed(count: number): Promise<void>;
  stop(): Promise<void>;
}

const NAME = 'billing';
const SENTINELS = 3;
/** How long a server may be silent before the sentinels vote about it: longer than a busy machine holds it up. */
const DOWN_AFTER_MS = 2_000;
const QUICK_SYNC = ['--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];

/** One master, two replicas and three sentinels of your own; `stop()` them when done. */
export async function startRedisSentinel(): Promise<RedisSentinel> {
  const first = await startRedis({ settings: QUICK_SYNC });
  const started: TestServer[] = [first];
  const stop = async (): Promise<void> => void (await Promise.all(started.map((each) => each.stop())));
  try {
    const settings = [...QUICK_SYNC, '--replicaof', first.host, String(first.port)];
    const replicas = await Promise.all([startRedis({ settings }), startRedis({ settings })]);
    started.push(...replicas);
    await until('two replicas follow', () => hasReplicas(first, replicas.length));
    const sentinels = await Promise.all(Array.from({ length: SENTINELS }, () => startSentinel(first)));
    started.push(...sentinels);
    await until('the sentinels know each other', () => knowEachOther(sentinels));
    return sentinelOf(sentinels, [first, ...replicas], stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

function sentinelOf(
  sentinels: readonly TestServer[],
  servers: readonly RedisServer[],
  stop: () => Promise<void>,
): RedisSentinel {
  const master = (): Promise<RedisServer> => masterAmong(servers, sentinels[0] as TestServer);
  return {
    name: NAME,
    sentinels: sentinels.map(({ host, port }) => ({ host, port })),
    servers,
    master,
    async failedOver(old) {
      await until('another master', async () => {
        const named = await Promise.all(sentinels.map((each) => masterAmong(servers, each)));
        const [one] = named;
        return one !== undefined && one !== old && named.every((each) => each === one) && isMaster(one);
      });
      return master();
    },
    followed: (count) => until(`${count} replicas follow`, async () => hasReplicas(await master(), count)),
    stop,
  };
}

function startSentinel(master: RedisServer): Promise<TestServer> {
  return startServer({
    kind: 'redis',
    url: (host, port) => `redis://${host}:${port}`,
    command: ({ folder, port }) => ({
      program: 'redis-server',
      args: [settingsFile(folder, port, master), '--sentinel'],
    }),
    ask: ping,
  });
}

/** Sentinels write down in it what they learn, and go on from there when they are started again. */
function settingsFile(folder: string, port: number, master: RedisServer): string {
  const file = join(folder, 'sentinel.conf');
  if (existsSync(file) && readFileSync(file, 'utf8').includes(`port ${port}\n`)) return file;
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${folder}`,
    `sentinel monitor ${NAME} ${master.host} ${master.port} 2`,
    `sentinel down-after-milliseconds ${NAME} ${DOWN_AFTER_MS}`,
    `sentinel failover-timeout ${NAME} 3000`,
    `sentinel parallel-syncs ${NAME} 2`,
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  return file;
}

async function masterAmong(servers: readonly RedisServer[], sentinel: TestServer): Promise<RedisServer> {
  const address = await redisCommand(sentinel.port, 'SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME);
  const found = servers.find(({ port }) => String(port) === (address as string[])[1]);
  if (!found) throw new Error(`the sentinel names a stranger: ${String(address)}`);
  return found;
}

/** Before a sentinel knows the replicas and its peers it cannot take part in a failover. */
async function knowEachOther(sentinels: readonly TestServer[]): Promise<boolean> {
  const told = await Promise.all(sentinels.map(({ port }) => redisCommand(port, 'INFO', 'sentinel')));
  return told.every(
    (info) => String(info).includes(`status=ok`) && /slaves=2,sentinels=3/.test(String(info)),
  );
}

async function hasReplicas(server: RedisServer, count: number): Promise<boolean> {
  const info = String(await redisCommand(server.port, 'INFO', 'replication'));
  return [...info.matchAll(/^slave\d+:.*state=online/gm)].length === count;
}

async function isMaster(server: RedisServer): Promise<boolean> {
  return String(await redisCommand(server.port, 'INFO', 'replication')).includes('role:master');
}
