import { randomBytes } from 'node:crypto';

import type { EntityMetadata } from 'typeorm';

import { asBinaryText, type Dialect } from '../sql/index.js';
import type { BuilderFollowers, StatementBuilder } from './builders.js';
import type { FencedEntity } from '../entities/index.js';
import { currentFencedCall } from './fenced-calls.js';
import type { GuardExpressions } from './guard-expression.js';
import { override } from './override.js';
import type { Proof } from './proof.js';
import type { Proofs } from './proofs.js';
import type { Refusals } from './refusals.js';
import { raising } from './raising.js';
import { unfencedReason } from './unfenced.js';

export interface StatementGuardParts {
  readonly dialect: Dialect;
  /** Quotes a name, as the driver does. */
  readonly escape: (name: string) => string;
  readonly entities: readonly FencedEntity[];
  readonly expressions: GuardExpressions;
  readonly proofs: Proofs;
  readonly refusals: Refusals;
}

/**
 * Puts guards into statements that no hook can reach: DELETE, soft removal and recovery by criteria, and what an upsert
 * does to a row that is there. Only for calls of `fenced(repository)`.
 */
export class StatementGuards {
  /** Known to nobody else; it marks guarded upserts, and it is what the database says when it refuses a DELETE. */
  readonly #nonce = `lock refused ${randomBytes(12).toString('hex')}`;
  readonly #entities: ReadonlyMap<EntityMetadata, FencedEntity>;

  constructor(private readonly parts: StatementGuardParts) {
    this.#entities = new Map(parts.entities.map((entity) => [entity.metadata, entity]));
  }

  readonly followers: Pick<BuilderFollowers, 'delete' | 'softDelete' | 'restore' | 'insert'> = {
    delete: (builder) => this.#follow(builder, 'createWhereExpression', this.#guardDelete),
    softDelete: (builder) => this.#follow(builder, 'createUpdateExpression', this.#guardUpdate),
    restore: (builder) => this.#follow(builder, 'createUpdateExpression', this.#guardUpdate),
    insert: (builder) => this.#follow(builder, 'createInsertExpression', this.#guardConflict),
  };

  /** True when `sql` also guards what a conflict makes of an insert. */
  guardsConflict(sql: string): boolean {
    return sql.includes(`/*${this.#nonce}*/`);
  }

  /** True when the database refused a DELETE because of its guard. */
  isRefusal(error: unknown): boolean {
    return error instanceof Error && error.message.includes(this.#nonce);
  }

  #follow(builder: StatementBuilder, part: BuiltPart, guard: PartGuard): void {
    const build = builder[part].bind(builder);
    override(builder, part, () => {
      const { mainAlias } = builder.expressionMap;
      const entity = mainAlias?.hasMetadata ? this.#entities.get(mainAlias.metadata) : undefined;
      const sql = build();
      return entity && currentFencedCall() ? guard.call(this, sql, entity, builder) : sql;
    });
  }

  /**
   * A DELETE has no column that could refuse a value, so it fails on purpose at the first row that its guard does not
   * allow. The criteria stand there twice: databases evaluate the two sides of AND in any order.
   */
  #guardDelete(where: string, entity: FencedEntity): string {
    const proofs = this.#proofs(entity);
    if (proofs.length === 0) return where;
    const column = this.#name(entity.tokenColumn);
    const refusal = raising(this.parts.dialect, this.#nonce, column);
    const guard = `COALESCE(${this.parts.expressions.forUpdate(entity, proofs)}, ${refusal}) >= 0`;
    const criteria = where.replace(/^\s*WHERE\s/, '').trim();
    if (criteria === '') return ` WHERE ${guard}`;
    return ` WHERE (${criteria}) AND CASE WHEN (${criteria}) THEN ${guard} END`;
  }

  /** Before all other columns: MySQL and MariaDB show later ones what earlier ones were set to. */
  #guardUpdate(sql: string, entity: FencedEntity): string {
    const proofs = this.#proofs(entity);
    if (proofs.length === 0) return sql;
    const guard = this.parts.expressions.forUpdate(entity, proofs);
    return after(sql, sql.indexOf(SET), SET, `${this.#name(entity.tokenColumn)} = ${guard}, `);
  }

  /**
   * The row to be inserted carries a guard for its key already. The one that is there must be of that very key, and not
   * ahead of the token.
   */
  #guardConflict(sql: string, entity: FencedEntity, builder: StatementBuilder): string {
    const { onUpdate } = builder.expressionMap;
    // Without a guard in its values, nothing was demanded of it.
    if (!onUpdate || this.parts.expressions.markIn(sql) === null) return sql;
    const { tokenColumn, keyColumns, metadata } = entity;
    const { dialect, escape } = this.parts;
    const isMysql = dialect === 'mysql';
    const there = (column: Named): string =>
      isMysql ? this.#name(column) : `${escape(builder.alias)}.${this.#name(column)}`;
    const given = (column: Named): string =>
      isMysql ? `VALUES(${this.#name(column)})` : `EXCLUDED.${this.#name(column)}`;
    const text = (expression: string): string => asBinaryText(dialect, expression);
    const conditions = [
      ...keyColumns.map((column) => `${text(there(column))} = ${text(given(column))}`),
      `${given(tokenColumn)} > 0`,
      `${there(tokenColumn)} <= ${given(tokenColumn)}`,
    ];
    const guard = `/*${this.#nonce}*/ CASE WHEN ${conditions.join(' AND ')} THEN ${given(tokenColumn)} END`;
    const version = metadata.versionColumn;
    const raised = version && !namesOf(onUpdate.overwrite).includes(version.databaseName);
    const step = raised ? `${this.#name(version)} = ${there(version)} + 1, ` : '';
    const assignments = `${this.#name(tokenColumn)} = ${guard}, ${step}`;
    const words = isMysql ? ' ON DUPLICATE KEY UPDATE ' : ' DO UPDATE SET ';
    return after(sql, sql.lastIndexOf(words), words, assignments);
  }

  #name({ databaseName }: Named): string {
    return this.parts.escape(databaseName);
  }

  /** @throws {UnfencedWriteError} no lock is held that protects rows of the entity, and one is demanded */
  #proofs(entity: FencedEntity): readonly Proof[] {
    const proofs = this.parts.proofs.forEntity(entity);
    if (proofs.length === 0 && entity.unfencedWrites === 'refuse' && unfencedReason() === undefined) {
      throw this.parts.refusals.noToken({ entity, path: currentFencedCall()?.path ?? 'a statement' });
    }
    return proofs;
  }
}

type BuiltPart = 'createWhereExpression' | 'createUpdateExpression' | 'createInsertExpression';
type PartGuard = (sql: string, entity: FencedEntity, builder: StatementBuilder) => string;
type Named = Pick<FencedEntity['tokenColumn'], 'databaseName'>;

const SET = ' SET ';

/** @throws {Error} TypeORM built something else than it used to; nothing has been sent */
function after(sql: string, at: number, words: string, inserted: string): string {
  if (at < 0) throw new Error(`TypeORM built a statement without${words}; it was not sent: ${sql}`);
  return sql.slice(0, at + words.length) + inserted + sql.slice(at + words.length);
}

function namesOf(columns: unknown): readonly unknown[] {
  return Array.isArray(columns) ? columns : [];
}
