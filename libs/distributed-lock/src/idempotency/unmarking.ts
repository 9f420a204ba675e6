import { MARK, UnstorableError, type Json } from './marking.js';
import type { ResultClasses } from './result-classes.js';

/** @throws {UnstorableError} the text holds what this version, or this set of classes, cannot make */
export function unmark(json: Json, classes: ResultClasses): unknown {
  if (Array.isArray(json)) return json.map((item: Json) => unmark(item, classes));
  if (typeof json !== 'object' || json === null) return json;
  const object = json as { readonly [key: string]: Json };
  return Object.hasOwn(object, MARK) ? unmarkOne(object, classes) : unmarkEach(object, classes);
}

function unmarkEach(object: { readonly [key: string]: Json }, classes: ResultClasses): object {
  return Object.fromEntries(Object.entries(object).map(([key, item]) => [key, unmark(item, classes)]));
}

function unmarkOne(
  { [MARK]: kind, name, v = null }: { readonly [key: string]: Json },
  classes: ResultClasses,
): unknown {
  switch (kind) {
    case 'undefined':
      return undefined;
    case 'number':
      return Number(v);
    case 'bigint':
      return BigInt(v as string);
    case 'date':
      return new Date((v as number | null) ?? NaN);
    case 'map':
      return new Map(
        (v as readonly (readonly [Json, Json])[]).map(([key, item]) => [
          unmark(key, classes),
          unmark(item, classes),
        ]),
      );
    case 'set':
      return new Set((v as readonly Json[]).map((item) => unmark(item, classes)));
    case 'object':
      return unmarkEach(v as { readonly [key: string]: Json }, classes);
    case 'class':
      return revived(name as string, v, classes);
    default:
      return bytesFrom(kind as string, Buffer.from(v as string, 'base64'));
  }
}

function revived(name: string, v: Json, classes: ResultClasses): unknown {
  const registered = Object.hasOwn(classes, name) ? classes[name] : undefined;
  if (!registered)
    throw new UnstorableError(
      `The class "${name}" is not registered here, so its instance cannot be made again.`,
    );
  const stored = unmark(v, classes);
  if (registered.revive) return registered.revive(stored as never);
  const { prototype } = registered.type as unknown as { readonly prototype: object };
  return Object.defineProperties(
    Object.create(prototype) as object,
    Object.getOwnPropertyDescriptors(stored as object),
  );
}

type View = new (buffer: ArrayBuffer) => object;

const VIEWS: ReadonlyMap<string, View> = new Map<string, View>(
  [
    Int8Array,
    Uint8Array,
    Uint8ClampedArray,
    Int16Array,
    Uint16Array,
    Int32Array,
    Uint32Array,
    Float32Array,
    Float64Array,
    BigInt64Array,
    BigUint64Array,
    DataView,
  ].map((view) => [view.name, view as View]),
);

function bytesFrom(kind: string, bytes: Buffer): unknown {
  if (kind === 'Buffer') return bytes;
  const copy = new Uint8Array(bytes).buffer;
  if (kind === 'ArrayBuffer') return copy;
  const View = VIEWS.get(kind);
  if (View) return new View(copy);
  throw new UnstorableError(`The record holds a value of kind "${kind}", which this version cannot read.`);
}
