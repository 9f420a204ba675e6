import { createHash } from 'node:crypto';

/** A script with its digest, so that only the digest travels. */
export interface RedisScript {
  readonly text: string;
  readonly sha1: string;
}

export function script(text: string): RedisScript {
  return { text, sha1: createHash('sha1').update(text).digest('hex') };
}
