import type { StoredResult } from './idempotency-store.js';
import type { ResultClasses } from './result-classes.js';
import { fromTypedJson, toTypedJson } from './typed-json.js';

/** Keeps stored results unreadable to whoever reads the store. */
export interface ResultEncryption {
  /** Returns text without NUL characters, e.g. base64. `recordId` may be authenticated with it. */
  encrypt(text: string, recordId: string): string | Promise<string>;
  decrypt(text: string, recordId: string): string | Promise<string>;
}

export interface ResultRules {
  readonly classes: ResultClasses;
  readonly maxResultBytes: number;
  readonly encryption: ResultEncryption | undefined;
  onPlain(className: string): void;
}

/** A result, or why it could not be kept. */
export interface Kept {
  readonly result: StoredResult;
  readonly omittedBecause?: unknown;
}

const PLAIN = 'typed-json/1';
const ENCRYPTED = 'typed-json/1+encrypted';

/** Never rejects: a body that has finished must not fail because its result cannot be kept. */
export async function keepResult(
  recordId: string,
  outcome: 'value' | 'error',
  value: unknown,
  rules: ResultRules,
): Promise<Kept> {
  try {
    const text = toTypedJson(value, rules);
    const { encryption } = rules;
    const body = encryption ? await encryption.encrypt(text, recordId) : text;
    requireSize(body, rules.maxResultBytes);
    return { result: { outcome, codec: encryption ? ENCRYPTED : PLAIN, body } };
  } catch (cause) {
    return { result: { outcome: 'omitted', codec: PLAIN, body: '' }, omittedBecause: cause };
  }
}

/**
 * The result, or a promise of it if it has to be decrypted: plain ones are most, and each promise is felt in a replay.
 *
 * @throws whatever keeps the result from being read: another version, another key, a class that is not registered
 */
export function readResult(
  recordId: string,
  { codec, body }: StoredResult,
  { classes, encryption }: ResultRules,
): unknown {
  if (codec === PLAIN) return fromTypedJson(body, classes);
  if (codec !== ENCRYPTED)
    throw new TypeError(`it was written as "${codec}", which this version cannot read`);
  if (!encryption) throw new TypeError('it is encrypted, and no encryption is configured here');
  return decrypted(encryption, body, recordId).then((text) => fromTypedJson(text, classes));
}

/** decrypt() may answer at once, and throw at once. */
async function decrypted(encryption: ResultEncryption, body: string, recordId: string): Promise<string> {
  return encryption.decrypt(body, recordId);
}

function requireSize(body: string, maxBytes: number): void {
  const bytes = Buffer.byteLength(body);
  if (bytes > maxBytes) throw new RangeError(`It has ${bytes} bytes, and maxResultBytes is ${maxBytes}.`);
  if (body.includes('\0'))
    throw new TypeError('encrypt() returned text with a NUL character; return base64.');
}
