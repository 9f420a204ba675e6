import { LockConfigInvalidError, StoreUnavailableError, systemClock, withinTime } from '../core/index.js';
import { messageOf, type RedisLink } from './redis-client.js';

const BOOT_TIMEOUT_MS = 5_000;
const OLDEST_MAJOR = 5;

/** What a server tells about itself, by the names of INFO; empty where it may not tell. */
export type ServerInfo = Readonly<Record<string, string | undefined>>;

/**
 * Looks at the server once. What it does not tell (a managed Redis may forbid INFO) is not checked.
 *
 * @throws {StoreUnavailableError} it cannot be reached
 * @throws {LockConfigInvalidError} locks would not be safe on it; says what to change
 */
export async function checkServer(link: RedisLink, allowEviction: boolean): Promise<void> {
  requireUsable(await readInfo(link), link.address, allowEviction);
}

/** @throws {LockConfigInvalidError} locks would not be safe on the server that told this; says what to change */
export function requireUsable(told: ServerInfo, address: string, allowEviction: boolean): void {
  const refuse = (why: string): never => {
    throw new LockConfigInvalidError(`Redis at ${address} cannot keep locks: ${why}`);
  };
  const { redis_version: version, redis_mode: mode, role } = told;
  if (mode === 'sentinel') refuse('it is a Sentinel; connect to the master that it watches.');
  if (mode === 'cluster')
    refuse('it is a node of a Redis Cluster, which is not supported; use a single server.');
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
    const ask = (): Promise<string> => link.send(BOOT_TIMEOUT_MS, (client) => client.info());
    const info = await withinTime(systemClock, BOOT_TIMEOUT_MS, ask); // a client of the application may queue for ever
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
