import type { ObjectLiteral, QueryRunner } from 'typeorm';

import type { FencedEntity } from '../entities/index.js';
import type { GuardExpressions } from './guard-expression.js';
import type { Stamp } from './operations.js';
import type { Proof } from './proof.js';
import type { Refusals } from './refusals.js';

/**
 * Guards statements that carry no values, such as DELETE: just before them, in the same transaction, the token is written
 * onto the row, with the guard. From then on the row is locked by the database itself. No version is raised by it.
 */
export class RowStamps {
  constructor(
    private readonly expressions: GuardExpressions,
    private readonly refusals: Refusals,
  ) {}

  stamp(entity: FencedEntity, proofs: readonly Proof[], row: ObjectLiteral, verb: Stamp['verb']): Stamp {
    return {
      entity,
      verb,
      run: async (runner) => {
        const { sql, parameters } = this.#statement(entity, proofs, row, runner);
        const { affected } = await runner.query(sql, parameters, true);
        if (affected === undefined)
          throw new Error('This driver does not say how many rows a statement wrote.');
        if (affected !== 1) throw this.refusals.rowIsGone(entity, proofs);
      },
    };
  }

  #statement(
    entity: FencedEntity,
    proofs: readonly Proof[],
    row: ObjectLiteral,
    { manager }: QueryRunner,
  ): { sql: string; parameters: unknown[] } {
    const { driver } = manager.dataSource;
    const { primaryColumns, tablePath } = entity.metadata;
    const table = tablePath.split('.').map((name) => driver.escape(name));
    const column = driver.escape(entity.tokenColumn.databaseName);
    const isRow = primaryColumns.map(
      ({ databaseName }, i) => `${driver.escape(databaseName)} = ${driver.createParameter('key', i)}`,
    );
    return {
      sql:
        `UPDATE ${table.join('.')} SET ${column} = ${this.expressions.forUpdate(entity, proofs)} ` +
        `WHERE ${isRow.join(' AND ')}`,
      parameters: primaryColumns.map((primary): unknown =>
        driver.preparePersistentValue(primary.getEntityValue(row, true), primary),
      ),
    };
  }
}
