import { Column, type EntityMetadata, type EntitySchemaColumnOptions } from 'typeorm';

import { LockConfigInvalidError, lockKey, type KeyTemplate, type LockKey } from '../../core/index.js';

/**
 * What becomes of a write to a fenced entity that carries no token: `refuse` throws `UNFENCED_WRITE`; `warn` lets it
 * pass and reports each call site once; `allow` lets it pass. Either way it is an event.
 */
export type UnfencedWrites = 'refuse' | 'warn' | 'allow';

export interface FencedByOptions {
  /** For this entity only. Default: what the module says, and that is `refuse`. */
  readonly unfencedWrites?: UnfencedWrites;
}

/** What the decorators have noted on a class. Subclasses inherit it, as they inherit columns. */
export interface FenceNotes {
  readonly fencedBy?: FencedByOptions & { readonly template: KeyTemplate };
  readonly tokenProperty?: string;
}

/** Registered, so that two copies of this package read each other's notes. */
const FENCED_BY = Symbol.for('nestjs-distributed-lock/fenced-by');
const TOKEN_PROPERTY = Symbol.for('nestjs-distributed-lock/token-property');

/** PostgreSQL gives bigint as text; tokens are safe integers. */
const TOKENS = { from: numberOrNothing, to: (value: unknown) => value };
const TOKEN_COLUMN = { type: 'bigint', default: 0, select: false } as const;

/**
 * Names the lock that protects a row of this entity: `@FencedBy('invoice:<id>')`. From then on the database itself
 * refuses a write of an owner that has been succeeded.
 *
 * Placeholders are properties of the entity: `<id>`, `<address.city>` of an embedded object, `<invoice.id>` of a
 * relation with a join column. The entity also needs a {@link LockTokenColumn}; subclasses inherit both.
 *
 * @throws {LockConfigInvalidError} the template is not usable, or the class has one already
 */
export function FencedBy(key: string | LockKey, options: FencedByOptions = {}): ClassDecorator {
  const { template } = typeof key === 'string' ? lockKey(key) : key;
  return (target) => {
    if (Object.hasOwn(target, FENCED_BY)) {
      throw new LockConfigInvalidError(
        `${target.name} has two @FencedBy: one lock protects a row, so keep one of them.`,
      );
    }
    note(target, FENCED_BY, { ...options, template });
  };
}

/**
 * The column that remembers which owner wrote a row last: `bigint NOT NULL DEFAULT 0`, a number in the entity, not
 * selected unless asked for. Only the guards write it: what user code puts there is ignored.
 */
export function LockTokenColumn(): PropertyDecorator {
  return (prototype, property) => {
    Column({ ...TOKEN_COLUMN, transformer: { ...TOKENS } })(prototype, property);
    note(prototype.constructor, TOKEN_PROPERTY, property);
  };
}

/**
 * For an `EntitySchema`, which has no class to decorate: the token column, which also names the lock that protects a row.
 * `columns: { id: …, lockToken: lockTokenColumn('invoice:<id>') }` is what {@link FencedBy} and {@link LockTokenColumn}
 * are on a class.
 *
 * @throws {LockConfigInvalidError} the template is not usable
 */
export function lockTokenColumn(
  key: string | LockKey,
  options: FencedByOptions = {},
): EntitySchemaColumnOptions {
  const { template } = typeof key === 'string' ? lockKey(key) : key;
  const transformer = { ...TOKENS };
  note(transformer, FENCED_BY, { ...options, template });
  return { ...TOKEN_COLUMN, transformer };
}

/** What is noted on the class of an entity, and in its schema. */
export function fenceNotes({ target, columns }: EntityMetadata): FenceNotes {
  const { [FENCED_BY]: byClass, [TOKEN_PROPERTY]: tokenProperty } = notesOn(target);
  const column = columns.find(({ transformer }) => notesOn(transformer)[FENCED_BY] !== undefined);
  return {
    fencedBy: (byClass ?? notesOn(column?.transformer)[FENCED_BY]) as FenceNotes['fencedBy'],
    tokenProperty: (tokenProperty ?? column?.propertyName) as FenceNotes['tokenProperty'],
  };
}

function notesOn(noted: unknown): Readonly<Record<symbol, unknown>> {
  return noted instanceof Object ? (noted as unknown as Record<symbol, unknown>) : {};
}

/** A static property, so that the prototype chain of classes does the inheriting. */
function note(target: object, name: symbol, value: unknown): void {
  Object.defineProperty(target, name, { value });
}

function numberOrNothing(stored: unknown): unknown {
  return stored == null ? stored : Number(stored);
}
