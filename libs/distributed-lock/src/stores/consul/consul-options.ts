import { LockConfigInvalidError, requireTokenOffset } from '../../core/index.js';
import type { ClientSettings, ConsulTls } from './consul-client.js';

export interface ConsulStoreOptions {
  /** Address of an agent, e.g. `http://127.0.0.1:8500`. It finds the servers by itself. */
  readonly url: string;
  /** An ACL token that may write keys which begin with `keyPrefix`, and sessions on the agent's node. */
  readonly token?: string;
  /** For an `https://` url: an authority of your own, and a client certificate, as PEM. */
  readonly tls?: ConsulTls;
  /** Put before every key. Default `lock/`; made of letters, digits, `_`, `-` and slashes. */
  readonly keyPrefix?: string;
  /**
   * How long a key stays closed to everybody after its session has ended under it, as after a crash. Default 0, at most
   * 60 000. Never after a release.
   *
   * It gives work that cannot look at a token time to end. Fenced rows do not need it, and the server adds a whole ttl
   * already.
   */
  readonly lockDelayMs?: number;
  /** Agents take 200 connections from one address by default, which all processes of a host share. Default 20, at least 2. */
  readonly maxConnections?: number;
  /**
   * Added to every token. Default 0. After a move from a store whose tokens are larger, set it to the largest that was
   * handed out there, so that tokens go on rising.
   */
  readonly tokenOffset?: number;
}

export interface ConsulSettings {
  readonly client: ClientSettings;
  readonly keyPrefix: string;
  readonly lockDelayMs: number;
  readonly tokenOffset: number;
}

/** Consul takes no longer lock-delay. */
const LONGEST_DELAY_MS = 60_000;

/** @throws {LockConfigInvalidError} says which option to change, and into what */
export function settingsOf(options: ConsulStoreOptions): ConsulSettings {
  const { token, tls, keyPrefix = 'lock/', lockDelayMs = 0, maxConnections = 20, tokenOffset = 0 } = options;
  if (!/^[\w-]+(?:\/[\w-]+)*\/?$/.test(keyPrefix)) {
    refuse('keyPrefix', keyPrefix, 'one like "lock/", of letters, digits, "_", "-" and single slashes');
  }
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) refuseToken();
  if (!isWhole(lockDelayMs, 0) || lockDelayMs > LONGEST_DELAY_MS) {
    refuse('lockDelayMs', lockDelayMs, `a whole number of milliseconds from 0 to ${LONGEST_DELAY_MS}`);
  }
  if (!isWhole(maxConnections, 2)) refuse('maxConnections', maxConnections, 'a whole number from 2');
  return {
    client: { url: urlOf(options.url), token, tls, maxConnections },
    keyPrefix,
    lockDelayMs,
    tokenOffset: requireTokenOffset(tokenOffset),
  };
}

function urlOf(url: string | undefined): URL {
  if (typeof url === 'string' && URL.canParse(url)) {
    const parsed = new URL(url);
    const bare = parsed.username === '' && parsed.pathname === '/' && parsed.search === '';
    if (/^https?:$/.test(parsed.protocol) && bare) return parsed;
  }
  throw new LockConfigInvalidError(
    'The url of consulStore() is not usable; write that of an agent, e.g. "http://127.0.0.1:8500", without user, path ' +
      'and query. An ACL token goes into token.',
  );
}

const isWhole = (value: unknown, least: number): boolean =>
  Number.isSafeInteger(value) && Number(value) >= least;

function refuse(option: string, value: unknown, what: string): never {
  throw new LockConfigInvalidError(`${option} is ${JSON.stringify(value)}; write ${what}.`);
}

/** Without its value, which is a secret also when it is wrong. */
function refuseToken(): never {
  throw new LockConfigInvalidError(
    'token is not usable; write the SecretID of an ACL token, or leave it out.',
  );
}
