import type { EntityMetadata } from 'typeorm';

import type { FencedEntity } from './fenced-entity.js';

/** An expression for the token column. It is asked for when TypeORM builds the statement. */
export interface ColumnGuard {
  readonly sql: string;
  /** What the row's token will be when the statement has run. */
  readonly token: number | null;
  /** Looks at what an update is going to change, just before the statement is built. */
  checkChanges?(changes: object): void;
  /** Looks at the row that is going to be inserted, just before the statement is built. */
  checkRow?(row: object): void;
}

type Expression = () => string;

/**
 * Gives the token column its values. Nothing is put on the entity itself: TypeORM asks the column for the value of an
 * entity, and the column answers from here. So whatever user code put there is ignored, and nothing has to be cleaned up
 * when an operation fails.
 */
export class GuardedValues {
  readonly #waiting = new WeakMap<object, Expression>();
  readonly #guards = new WeakMap<Expression, ColumnGuard>();
  readonly #written = new WeakMap<object, number>();

  /** Teaches the column of `entity` to answer from here. */
  attach({ metadata, tokenColumn }: FencedEntity): void {
    const ownValue = tokenColumn.getEntityValue.bind(tokenColumn);
    tokenColumn.getEntityValue = (values, transform) => {
      if (values == null) return values;
      const named = ownValue(values, transform) as Expression;
      const guard = this.#guards.get(named);
      guard?.checkChanges?.(values);
      return guard ? named : this.#waiting.get(values);
    };
    leaveOutOfReturning(metadata, tokenColumn);
  }

  /** For an entity, or for the values of an insert. */
  guard(values: object, guard: ColumnGuard): void {
    const expression = this.#expression(values, guard);
    this.#waiting.set(values, expression);
  }

  /** For the values of an update, of which TypeORM looks at no column that they do not name. */
  guardNamed({ tokenColumn }: FencedEntity, values: object, guard: ColumnGuard): void {
    tokenColumn.setEntityValue(values, this.#expression(values, guard));
  }

  /** What user code says about the token does not count. */
  unname({ tokenColumn }: FencedEntity, values: object): void {
    if (tokenColumn.propertyName in values) tokenColumn.setEntityValue(values, undefined);
  }

  leave(values: object): void {
    this.#waiting.delete(values);
  }

  /** After the statement: an entity that shows its token shows the new one. */
  settle({ tokenColumn }: FencedEntity, values: object): void {
    const token = this.#written.get(values);
    const shown = (values as Record<string, unknown>)[tokenColumn.propertyName];
    if (token === undefined || shown === undefined) return;
    tokenColumn.setEntityValue(values, token);
  }

  #expression(values: object, guard: ColumnGuard): Expression {
    const expression = (): string => {
      guard.checkRow?.(values);
      this.#waiting.delete(values);
      if (guard.token !== null) this.#written.set(values, guard.token);
      return guard.sql;
    };
    this.#guards.set(expression, guard);
    return expression;
  }
}

/** TypeORM would read the column back after each insert, for its default. On SQLite that is a statement more for each row. */
function leaveOutOfReturning(metadata: EntityMetadata, tokenColumn: FencedEntity['tokenColumn']): void {
  const columns = metadata.getInsertionReturningColumns.bind(metadata);
  metadata.getInsertionReturningColumns = () => columns().filter((column) => column !== tokenColumn);
}
