import {
  LockConfigInvalidError,
  pause,
  StoreUnavailableError,
  systemClock,
  withinTime,
} from '../core/index.js';
import { messageOf, type RedisLink } from './redis-client.js';

const BOOT_TIMEOUT_MS = 5_000;
const RECONNECTED_MS = 250;
const OLDEST_MAJOR = 5;

/** What a server tells about itself, by the names of INFO; empty where it may not tell. */
export type ServerInfo = Readonly<Record<string, string | undefined>>;

/** What is asked of a server, or of each master of a cluster. */
export interface ServerTerms {
  readonly allowEviction: boolean;
  /** How many replicas are to confirm a grant. Default 0. */
  readonly minReplicas?: number;
}

/**
 * Looks at the server once, or at each master of a cluster. What it does not tell (a managed Redis may forbid INFO) is not
 * checked.
 *
 * @throws {StoreUnavailableError} it cannot be reached, or too few replicas follow it
 * @throws {LockConfigInvalidError} locks would not be safe on it; says what to change
 */
export async function checkServer(link: RedisLink, terms: ServerTerms): Promise<void> {
  const first = await readInfo(link);
  if (!link.masters) return check(first, link.address, terms, false);
  for (const { client, address } of link.masters()) {
    const send: RedisLink['send'] = (_timeoutMs, command) => command(client);
    check(await readInfo({ ...link, address, send }), address, terms, true);
  }
}

function check(told: ServerInfo, address: string, terms: ServerTerms, inCluster: boolean): void {
  const { allowEviction, minReplicas = 0 } = terms;
  requireUsable(told, address, allowEviction, inCluster);
  const { connected_slaves: replicas } = told;
  if (replicas !== undefined && Number(replicas) < minReplicas) {
    throw new StoreUnavailableError(
      `Redis at ${address} has ${replicas} replicas, and minReplicas is ${minReplicas}: no lock could be taken. ` +
        'Nothing was locked; start its replicas, or lower minReplicas.',
      {},
    );
  }
}

/** @throws {LockConfigInvalidError} locks would not be safe on the server that told this; says what to change */
export function requireUsable(
  told: ServerInfo,
  address: string,
  allowEviction: boolean,
  inCluster = false,
): void {
  const refuse = (why: string): never => {
    throw new LockConfigInvalidError(`Redis at ${address} cannot keep locks: ${why}`);
  };
  const { redis_version: version, redis_mode: mode, role } = told;
  if (mode === 'sentinel') refuse('it is a Sentinel; connect to the master that it watches.');
  if (mode === 'cluster' && !inCluster)
    refuse('it is a node of a Redis Cluster, addressed as a single server; give redisStore() the cluster.');
  if (role !== undefined && role !== 'master') refuse(`its role is "${role}"; connect to the master.`);
  if (version !== undefined && Number.parseInt(version, 10) < OLDEST_MAJOR) {
    refuse(`it is version ${version}; version ${OLDEST_MAJOR} or newer is needed.`);
  }
  if (!allowEviction && evicts(told)) {
    refuse(
      `under memory pressure it may evict locks (maxmemory-policy ${told['maxmemory_policy']}). ` +
        'Set maxmemory-policy noeviction, use another server, or accept it with allowEviction: true.',
    );
  }
}

/** Every key of ours has a ttl, so the volatile policies take them first; without a memory limit they never strike. */
function evicts({ maxmemory_policy: policy = '', maxmemory }: ServerInfo): boolean {
  return policy.startsWith('allkeys-') || (policy.startsWith('volatile-') && maxmemory !== '0');
}

/** @throws {StoreUnavailableError} no answer */
export async function readInfo(link: RedisLink): Promise<ServerInfo> {
  try {
    const info = await askInfo(link);
    const lines = info
      .split(/\r?\n/)
      .map((line): [string, string] => [line.split(':', 1).join(), line.replace(/^.*?:/, '')]);
    return Object.fromEntries(lines);
  } catch (cause) {
    if (/^NOPERM|unknown command/i.test(messageOf(cause))) return {};
    throw new StoreUnavailableError(
      `Redis at ${link.address} gave no answer. Nothing was locked; check that the server runs and the address is right.`,
      { cause },
    );
  }
}

/** Twice at most: on a machine that is busy starting up, the first connection may have been given up while it was made. */
async function askInfo(link: RedisLink): Promise<string> {
  const ask = (): Promise<string> => link.send(BOOT_TIMEOUT_MS, (client) => client.info());
  const once = (): Promise<string> => withinTime(systemClock, BOOT_TIMEOUT_MS, ask); // an application's client may queue for ever
  try {
    return await once();
  } catch (error) {
    if (!/isn't writeable|connection is closed/i.test(messageOf(error))) throw error;
    await pause(systemClock, { timeoutMs: RECONNECTED_MS, signals: [] });
    return once();
  }
}
