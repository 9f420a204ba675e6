import { Column } from 'typeorm';

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
    // PostgreSQL gives bigint as text; tokens are safe integers.
    const transformer = { from: numberOrNothing, to: (value: unknown) => value };
    Column({ type: 'bigint', default: 0, select: false, transformer })(prototype, property);
    note(prototype.constructor, TOKEN_PROPERTY, property);
  };
}

/** @param target the class of an entity; a schema without a class has no notes */
export function fenceNotes(target: unknown): FenceNotes {
  if (typeof target !== 'function') return {};
  const noted = target as unknown as Record<symbol, unknown>;
  return {
    fencedBy: noted[FENCED_BY] as FenceNotes['fencedBy'],
    tokenProperty: noted[TOKEN_PROPERTY] as FenceNotes['tokenProperty'],
  };
}

/** A static property, so that the prototype chain of classes does the inheriting. */
function note(target: object, name: symbol, value: unknown): void {
  Object.defineProperty(target, name, { value });
}

function numberOrNothing(stored: unknown): unknown {
  return stored == null ? stored : Number(stored);
}
