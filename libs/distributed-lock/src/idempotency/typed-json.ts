import { MARK, markedJson, type Json, type MarkingOptions } from './marking.js';
import type { ResultClasses } from './result-classes.js';
import { unmark } from './unmarking.js';

/** Without it in the text, nothing in there is marked. */
const MARKED = JSON.stringify(MARK);

/**
 * JSON that keeps apart what JSON mixes up: undefined, NaN, -0, bigint, Date, Buffer and typed arrays, Map, Set, and
 * instances of registered classes, at any depth. Other instances become plain objects, through their `toJSON` if they have one.
 *
 * @throws {UnstorableError} functions, symbols, promises, streams and circular values have no text
 */
export function toTypedJson(value: unknown, options: MarkingOptions = {}): string {
  return JSON.stringify(markedJson(value, options));
}

export function fromTypedJson(text: string, classes: ResultClasses = {}): unknown {
  const json = JSON.parse(text) as Json;
  return text.includes(MARKED) ? unmark(json, classes) : json;
}
