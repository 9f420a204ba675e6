import { createHash } from 'node:crypto';

/** PostgreSQL refuses index entries beyond 2 700 bytes, and a key may have 1 024 characters of four. */
const LONGEST_PLAIN_BYTES = 512;
const SHOWN_CHARACTERS = 100;

/**
 * The text of a key as the table holds it: itself wherever possible, so that people can read it.
 *
 * NUL, which PostgreSQL cannot store, and the backslash are escaped; a long key becomes its beginning and a digest behind
 * `\#`, which no escaped key contains. So no two keys are stored alike.
 */
export function storedKey(key: string): string {
  const escaped = key.replaceAll('\\', '\\\\').replaceAll('\0', '\\0');
  if (Buffer.byteLength(escaped) <= LONGEST_PLAIN_BYTES) return escaped;
  const shown = [...escaped].slice(0, SHOWN_CHARACTERS).join('');
  return `${shown}\\#${createHash('sha256').update(key).digest('hex')}`;
}
