import { LockConfigInvalidError, requireTokenOffset } from '../../core/index.js';
import type { ZkHost } from './zk-connection.js';
import type { ZkAuth } from './zk-packets.js';

export interface ZooKeeperStoreOptions {
  /** Addresses of members of one ensemble, e.g. `127.0.0.1:2181`; several are tried in turn. */
  readonly hosts: string | readonly string[];
  /** The node that locks are made under. Default `/locks`; made when it is not there. */
  readonly root?: string;
  /** A user for ZooKeeper, e.g. `{ scheme: 'digest', credentials: 'name:password' }`. Locks then belong to that user alone. */
  readonly auth?: ZkAuth;
  /** Servers take 60 connections from one address by default, which all processes of a host share. Default 20, at least 1. */
  readonly maxConnections?: number;
  /**
   * Added to every token. Default 0. After a move from a store whose tokens are larger, set it to the largest that was
   * handed out there, so that tokens go on rising.
   */
  readonly tokenOffset?: number;
}

export interface ZooKeeperSettings {
  readonly hosts: readonly ZkHost[];
  readonly root: string;
  readonly auth: ZkAuth | undefined;
  readonly maxConnections: number;
  readonly tokenOffset: number;
}

/** @throws {LockConfigInvalidError} says which option to change, and into what */
export function settingsOf(options: ZooKeeperStoreOptions): ZooKeeperSettings {
  const { root = '/locks', auth, maxConnections = 20, tokenOffset = 0 } = options;
  if (!/^(?:\/[\w-]+)+$/.test(root)) {
    refuse('root', root, 'the path of a node, e.g. "/locks": slashes, letters, digits, "_" and "-"');
  }
  if (!Number.isSafeInteger(maxConnections) || maxConnections < 1) {
    refuse('maxConnections', maxConnections, 'a whole number from 1');
  }
  return {
    hosts: hostsOf(options.hosts),
    root,
    auth,
    maxConnections,
    tokenOffset: requireTokenOffset(tokenOffset),
  };
}

function hostsOf(hosts: string | readonly string[] | undefined): ZkHost[] {
  const list = typeof hosts === 'string' ? hosts.split(',') : (hosts ?? []);
  const parsed = list.map(
    (host) => /^(?<host>[\w.-]+|\[[\da-fA-F:]+\]):(?<port>\d{1,5})$/.exec(host.trim())?.groups,
  );
  const usable = parsed.flatMap((found) =>
    found ? [{ host: (found['host'] ?? '').replace(/[[\]]/g, ''), port: Number(found['port']) }] : [],
  );
  if (list.length > 0 && usable.length === list.length) return usable;
  throw new LockConfigInvalidError(
    'The hosts of zookeeperStore() are not usable; write "127.0.0.1:2181", or several of one ensemble.',
  );
}

function refuse(option: string, value: unknown, what: string): never {
  throw new LockConfigInvalidError(`${option} is ${JSON.stringify(value)}; write ${what}.`);
}
