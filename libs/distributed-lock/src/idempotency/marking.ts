import { isAnyArrayBuffer, isDate, isMap, isSet, isTypedArray } from 'node:util/types';

import type { ResultClass, ResultClasses } from './result-classes.js';

/** The value cannot be kept. The message says which part, and why. */
export class UnstorableError extends TypeError {
  override readonly name = 'UnstorableError';
}

/** The key that marks what JSON has no word for; plain objects that have it themselves are marked too. */
export const MARK = '$';

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export interface MarkingOptions {
  readonly classes?: ResultClasses;
  /** Told of classes that are not registered and will come back as plain objects. */
  readonly onPlain?: (className: string) => void;
}

/** @throws {UnstorableError} functions, symbols, promises, streams and circular values have no text */
export function markedJson(value: unknown, options: MarkingOptions = {}): Json {
  return new Marking(options).mark(value);
}

/** Whether this is how a marked undefined looks. */
export function isUndefined(json: unknown): boolean {
  return typeof json === 'object' && json !== null && (json as Record<string, unknown>)[MARK] === 'undefined';
}

class Marking {
  readonly #open = new Set<object>();
  readonly #path: string[] = [];
  readonly #classes: readonly (readonly [name: string, rule: ResultClass])[];

  constructor(private readonly options: MarkingOptions) {
    this.#classes = Object.entries(options.classes ?? {});
  }

  mark(value: unknown): Json {
    switch (typeof value) {
      case 'string':
      case 'boolean':
        return value;
      case 'undefined':
        return { [MARK]: 'undefined' };
      case 'number':
        return Number.isFinite(value) && !Object.is(value, -0)
          ? value
          : marked('number', specialNumber(value));
      case 'bigint':
        return marked('bigint', String(value));
      case 'object':
        return value === null ? null : this.#guarded(value);
      default:
        throw this.#unstorable(`a ${typeof value}`);
    }
  }

  #guarded(value: object): Json {
    if (this.#open.has(value)) throw this.#unstorable('a part of itself');
    this.#open.add(value);
    const json = this.#object(value);
    this.#open.delete(value);
    return json;
  }

  #object(value: object): Json {
    const registered = this.#classes.find(([, { type }]) => isExactly(value, type));
    if (registered) return this.#instance(value, ...registered);
    if (Array.isArray(value)) return Array.from(value, (item, i) => this.#part(String(i), item));
    if (isDate(value)) return marked('date', Number.isNaN(value.getTime()) ? null : value.getTime());
    if (isMap(value))
      return marked(
        'map',
        [...value].map(([key, item]) => [this.mark(key), this.mark(item)]),
      );
    if (isSet(value))
      return marked(
        'set',
        [...value].map((item) => this.mark(item)),
      );
    return bytesOf(value) ?? (isPlain(value) ? this.#plain(value) : this.#foreign(value));
  }

  #part(name: string, value: unknown): Json {
    this.#path.push(name);
    const json = this.mark(value);
    this.#path.pop();
    return json;
  }

  #plain(value: object): Json {
    const json = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.#part(key, item)]));
    return Object.hasOwn(json, MARK) ? marked('object', json) : json;
  }

  #instance(value: object, name: string, { store }: ResultClass): Json {
    return { [MARK]: 'class', name, v: store ? this.mark(store(value)) : this.#plain(value) };
  }

  #foreign(value: object): Json {
    const { constructor: type, toJSON } = value as { constructor?: { name?: string }; toJSON?: unknown };
    const name = type?.name || 'class without a name';
    if (isMachinery(value)) throw this.#unstorable(`a ${name}`);
    if (typeof toJSON === 'function') return this.mark(toJSON.call(value));
    if (Object.keys(value).length === 0) throw this.#unstorable(`a ${name}, which shows no properties`);
    this.options.onPlain?.(name);
    return this.#plain(value);
  }

  #unstorable(what: string): UnstorableError {
    const where = this.#path.length === 0 ? 'it' : `"${this.#path.join('.')}"`;
    return new UnstorableError(`${where} is ${what}, and cannot be stored.`);
  }
}

/** Streams, iterators, observables and what waits: their properties are their workings, not their content. */
function isMachinery(value: object): boolean {
  const methods = ['then', 'pipe', 'subscribe', 'next'];
  return (
    methods.some((name) => typeof (value as Readonly<Record<string, unknown>>)[name] === 'function') ||
    Symbol.asyncIterator in value
  );
}

function marked(kind: string, v: Json): Json {
  return { [MARK]: kind, v };
}

function specialNumber(value: number): string {
  return Object.is(value, -0) ? '-0' : String(value);
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype || Object.getPrototypeOf(prototype) === null;
}

function isExactly(value: object, type: ResultClass['type']): boolean {
  return Object.getPrototypeOf(value) === (type as { readonly prototype: unknown }).prototype;
}

function bytesOf(value: object): Json | undefined {
  if (Buffer.isBuffer(value)) return marked('Buffer', value.toString('base64'));
  if (isAnyArrayBuffer(value)) return marked('ArrayBuffer', Buffer.from(value).toString('base64'));
  if (!isTypedArray(value) && !(value instanceof DataView)) return undefined;
  const { buffer, byteOffset, byteLength, constructor: type } = value;
  return marked(type.name, Buffer.from(buffer, byteOffset, byteLength).toString('base64'));
}
