import { createHash } from 'node:crypto';

import { IdempotencyKeyInvalidError } from './idempotency-errors.js';
import { isUndefined, markedJson, UnstorableError } from './marking.js';

/** Names the algorithm, in two characters: fingerprints of different ones are never compared. */
const ALGORITHM = '1:';

/** Fingerprints are off: every request with the key is taken as the same. */
export const NO_FINGERPRINT = '';

/**
 * A digest of plain data, the same whatever order its properties were written in. A property that is undefined counts as
 * absent; 1 and '1', null and undefined, a Date and its text are different.
 *
 * Instances count by their own properties, so data transfer objects are plain data; what has none, or holds functions,
 * streams or itself, is refused rather than taken for something else.
 *
 * @throws {IdempotencyKeyInvalidError} says which part is no data
 */
export function fingerprintOf(data: unknown): string {
  try {
    const text = canonicalJson(markedJson(data));
    return ALGORITHM + createHash('sha256').update(text).digest('base64url');
  } catch (error) {
    if (!(error instanceof UnstorableError) && !(error instanceof RangeError)) throw error;
    throw new IdempotencyKeyInvalidError(
      `No fingerprint can be made of these arguments: ${error.message} The body did not run; ` +
        'say what identifies the call, e.g. fingerprint: (job) => job.data, or turn it off with fingerprint: false.',
      { cause: error },
    );
  }
}

/** JSON as RFC 8785 has it: properties sorted by UTF-16 units, numbers as ECMAScript writes them, no spaces. */
export function canonicalJson(json: unknown): string {
  if (Array.isArray(json)) return `[${json.map(canonicalJson).join(',')}]`;
  if (typeof json !== 'object' || json === null) return JSON.stringify(json);
  const object = json as Readonly<Record<string, unknown>>;
  const properties = Object.keys(object)
    .filter((key) => !isUndefined(object[key]))
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(object[key])}`);
  return `{${properties.join(',')}}`;
}
