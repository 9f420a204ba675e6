import { LockConfigInvalidError } from '../core/index.js';

/** The two Redis keys of one lock. */
export interface RedisKeys {
  /** Who holds the lock; lives as long as the grant. */
  readonly owner: string;
  /** The last token; outlives the grants. */
  readonly fence: string;
}

/**
 * Both keys carry the lock's key as hash tag, so that a cluster keeps them in one slot. Braces of the key are encoded,
 * because they would end the tag early; `%` is, so that no two locks share an encoding.
 */
export function redisKeys(prefix: string, key: string): RedisKeys {
  const tagged = `${prefix}{${key.replace(/[%{}]/g, encodeURIComponent)}}`;
  return { owner: `${tagged}:owner`, fence: `${tagged}:fence` };
}

/** @throws {LockConfigInvalidError} braces in the prefix would take the place of the hash tag */
export function requireKeyPrefix(prefix: string): string {
  if (!/[{}]/.test(prefix)) return prefix;
  throw new LockConfigInvalidError(
    `keyPrefix is ${JSON.stringify(prefix)}; write one without braces, e.g. "lock:".`,
  );
}
