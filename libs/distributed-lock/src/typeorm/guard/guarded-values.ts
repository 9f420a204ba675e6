import type { EntityMetadata } from 'typeorm';

import type { FencedEntity } from '../entities/index.js';

/** What goes into the token column, as SQL, and the token that the row will have then, where one is known. */
export interface TokenValue {
  readonly sql: string;
  readonly token: number | null;
}

/** Looks at all values of a statement, just before TypeORM builds it, and gives the one of the token column. */
export type ColumnGuard = (values: object) => TokenValue;

type Expression = () => string;

interface Guarded {
  readonly guard: ColumnGuard;
  /** The entity, or the values that user code gave. */
  readonly subject: object;
}

/**
 * Gives the token column its values. Nothing is put on the entity itself: TypeORM asks the column for the value of an
 * entity, and the column answers from here. So whatever user code put there is ignored, and nothing has to be cleaned up
 * when an operation fails.
 */
export class GuardedValues {
  readonly #waiting = new WeakMap<object, Expression>();
  readonly #guarded = new WeakMap<Expression, Guarded>();
  readonly #written = new WeakMap<object, number>();
  /** The children of a single-table inheritance share the columns of their parent. */
  readonly #taught = new WeakSet<object>();

  /** Teaches the column of `entity` to answer from here. */
  attach({ metadata, tokenColumn }: FencedEntity): void {
    leaveOutOfReturning(metadata, tokenColumn);
    if (this.#taught.has(tokenColumn)) return;
    this.#taught.add(tokenColumn);
    const ownValue = tokenColumn.getEntityValue.bind(tokenColumn);
    tokenColumn.getEntityValue = (values: object | null | undefined, transform?: boolean): unknown => {
      if (values == null) return values;
      // save() asks for the value of the entity, and puts it among the values of its statement.
      const named = this.#guarded.get(ownValue(values, transform) as Expression);
      return named ? () => this.#evaluate(named, values) : this.#waiting.get(values);
    };
  }

  /** For an entity, or for the values of an insert. */
  guard(subject: object, guard: ColumnGuard): void {
    this.#waiting.set(subject, this.#expression({ guard, subject }));
  }

  /** For the values of an update, of which TypeORM looks at no column that they do not name. */
  guardNamed({ tokenColumn }: FencedEntity, values: object, guard: ColumnGuard): void {
    tokenColumn.setEntityValue(values, this.#expression({ guard, subject: values }));
  }

  /** What user code says about the token does not count. */
  unname({ tokenColumn }: FencedEntity, values: object): void {
    if (tokenColumn.propertyName in values) tokenColumn.setEntityValue(values, undefined);
  }

  leave(subject: object): void {
    this.#waiting.delete(subject);
  }

  /** After the statement: an entity that shows its token shows the new one. */
  settle({ tokenColumn }: FencedEntity, subject: object): void {
    const token = this.#written.get(subject);
    const shown = (subject as Record<string, unknown>)[tokenColumn.propertyName];
    if (token === undefined || shown === undefined) return;
    tokenColumn.setEntityValue(subject, token);
  }

  #expression(guarded: Guarded): Expression {
    const expression = (): string => this.#evaluate(guarded, guarded.subject);
    this.#guarded.set(expression, guarded);
    return expression;
  }

  #evaluate({ guard, subject }: Guarded, values: object): string {
    const { sql, token } = guard(values);
    this.#waiting.delete(subject);
    if (token !== null) this.#written.set(subject, token);
    return sql;
  }
}

/** TypeORM would read the column back after each insert, for its default. On SQLite that is a statement more for each row. */
function leaveOutOfReturning(metadata: EntityMetadata, tokenColumn: FencedEntity['tokenColumn']): void {
  const columns = metadata.getInsertionReturningColumns.bind(metadata);
  metadata.getInsertionReturningColumns = () => columns().filter((column) => column !== tokenColumn);
}
