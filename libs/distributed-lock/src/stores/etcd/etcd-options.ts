import { LockConfigInvalidError, requireTokenOffset } from '../../core/index.js';
import type { EtcdCredentials, EtcdTls, GatewaySettings } from './gateway.js';

export interface EtcdStoreOptions {
  /** Addresses of members of one cluster, e.g. `http://127.0.0.1:2379`; several are tried in turn. */
  readonly hosts: string | readonly string[];
  /** Put before every key. Default `lock/`. */
  readonly keyPrefix?: string;
  /** A user who may read and write keys that begin with `keyPrefix`. */
  readonly auth?: EtcdCredentials;
  /** For `https://` hosts: an authority of your own, and a client certificate, as PEM. */
  readonly tls?: EtcdTls;
  /**
   * Added to every token. Default 0. After a move from a store whose tokens are larger, set it to the largest that was
   * handed out there, so that tokens go on rising.
   */
  readonly tokenOffset?: number;
}

interface EtcdSettings {
  readonly gateway: GatewaySettings;
  readonly keyPrefix: string;
  readonly tokenOffset: number;
}

/** @throws {LockConfigInvalidError} says which option to change, and into what */
export function settingsOf(options: EtcdStoreOptions): EtcdSettings {
  const { hosts, auth, tls, keyPrefix = 'lock/', tokenOffset = 0 } = options;
  if (keyPrefix === '') throw new LockConfigInvalidError('keyPrefix is empty; write one like "lock/".');
  return {
    gateway: { hosts: hostsOf(hosts), auth, tls },
    keyPrefix,
    tokenOffset: requireTokenOffset(tokenOffset),
  };
}

function hostsOf(hosts: string | readonly string[] | undefined): URL[] {
  const list = typeof hosts === 'string' ? [hosts] : (hosts ?? []);
  const urls = list.filter((host) => URL.canParse(host)).map((host) => new URL(host));
  const usable = urls.filter(({ protocol, username }) => /^https?:$/.test(protocol) && username === '');
  const kinds = new Set(usable.map(({ protocol }) => protocol));
  if (list.length > 0 && usable.length === list.length && kinds.size === 1) return usable;
  throw new LockConfigInvalidError(
    'The hosts of etcdStore() are not usable; write "http://127.0.0.1:2379", or several of one cluster, all with ' +
      'http:// or all with https://. Users go into auth: { username, password }.',
  );
}
