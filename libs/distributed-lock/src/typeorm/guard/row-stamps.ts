import type { DataSource, ObjectLiteral, QueryRunner } from 'typeorm';

import { rowsMatched } from '../sql/index.js';
import type { FencedEntity } from '../entities/index.js';
import type { GuardExpressions } from './guard-expression.js';
import type { Stamp } from './operations.js';
import type { Proof } from './proof.js';
import type { Refusals } from './refusals.js';

/** Takes a value of the row's id, and gives what stands for it in the statement. */
type Parameter = (value: unknown, index: number) => string;

/** Which statement a stamp lets pass. */
type Lets = Pick<Stamp, 'table' | 'verb'>;

/**
 * Guards statements that carry no values, such as DELETE: just before them, in the same transaction, the token is written
 * onto the row, with the guard. From then on the row is locked by the database itself. No version is raised by it.
 */
export class RowStamps {
  constructor(
    private readonly expressions: GuardExpressions,
    private readonly refusals: Refusals,
    private readonly driver: DataSource['driver'],
  ) {}

  stamp(entity: FencedEntity, proofs: readonly Proof[], row: ObjectLiteral, lets: Lets): Stamp {
    return {
      ...lets,
      entity,
      run: async (runner) => {
        if (!(await this.write(runner, entity, proofs, row))) throw this.refusals.rowIsGone(entity, proofs);
      },
    };
  }

  /** For a row that came without a lock just now: it stays as it is, as long as its key was never locked. */
  stampNew(entity: FencedEntity, qualifiedKeys: readonly string[], row: ObjectLiteral, lets: Lets): Stamp {
    const guard = this.expressions.forFreeInsert(qualifiedKeys);
    return {
      ...lets,
      entity,
      run: async (runner) => void (await this.#write(runner, entity, guard, row)),
    };
  }

  /** False when the row is not there. */
  write(
    runner: QueryRunner,
    entity: FencedEntity,
    proofs: readonly Proof[],
    row: ObjectLiteral,
  ): Promise<boolean> {
    return this.#write(runner, entity, this.expressions.forUpdate(entity, proofs), row);
  }

  /** @param parameter makes room for the parts of the row's id */
  statement(
    entity: FencedEntity,
    proofs: readonly Proof[],
    row: ObjectLiteral,
    parameter: Parameter,
  ): string {
    return this.#statement(entity, this.expressions.forUpdate(entity, proofs), row, parameter);
  }

  async #write(
    runner: QueryRunner,
    entity: FencedEntity,
    guard: string,
    row: ObjectLiteral,
  ): Promise<boolean> {
    const parameters: unknown[] = [];
    const sql = this.#statement(entity, guard, row, (value, i) => {
      parameters.push(value);
      return this.driver.createParameter('key', i);
    });
    const found = rowsMatched(await runner.query(sql, parameters, true));
    if (found === undefined) throw new Error('This driver does not say how many rows a statement wrote.');
    return found === 1;
  }

  #statement(
    { metadata, tokenColumn }: FencedEntity,
    guard: string,
    row: ObjectLiteral,
    parameter: Parameter,
  ): string {
    const escape = (name: string): string => this.driver.escape(name);
    const isRow = metadata.primaryColumns.map((column, i) => {
      const value: unknown = this.driver.preparePersistentValue(column.getEntityValue(row, true), column);
      return `${escape(column.databaseName)} = ${parameter(value, i)}`;
    });
    return (
      `UPDATE ${metadata.tablePath.split('.').map(escape).join('.')} ` +
      `SET ${escape(tokenColumn.databaseName)} = ${guard} ` +
      `WHERE ${isRow.join(' AND ')}`
    );
  }
}
