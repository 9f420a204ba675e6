import type { EntityManager, EntityMetadata, ObjectLiteral, QueryRunner } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import type { Dialect } from '../sql/index.js';
import type { Admission } from './admission.js';
import type { FencedEntity } from '../entities/index.js';
import type { FenceChecks } from './fence-checks.js';
import type { Proof } from './proof.js';
import type { Proofs } from './proofs.js';
import type { Refusals } from './refusals.js';
import type { RowStamps } from './row-stamps.js';

export interface FencedReadParts {
  readonly dialect: Dialect;
  readonly admission: Admission;
  readonly checks: FenceChecks;
  readonly proofs: Proofs;
  readonly refusals: Refusals;
  readonly stamps: RowStamps;
  readonly createRunner: () => QueryRunner;
}

/** The name under which the row that was stamped is read in the same statement. */
const STAMPED = 'stamped_row';

/** Reads a row and writes the token onto it in one step. */
export class FencedReads {
  constructor(private readonly parts: FencedReadParts) {}

  /** Null when there is no such row, and the locks held here are still the newest. */
  async read(entity: FencedEntity, id: unknown, manager: EntityManager): Promise<ObjectLiteral | null> {
    const where = requireId(entity, id);
    const proofs = this.#proofs(entity, where);
    const stampAndFind =
      this.parts.dialect === 'postgres' ? this.#inOneStatement.bind(this) : this.#inTwo.bind(this);
    const work = async (inner: EntityManager): Promise<ObjectLiteral | null> => {
      const runner = inner.queryRunner as QueryRunner;
      await this.parts.admission.admit(entity, proofs, runner);
      const row = await stampAndFind(entity, proofs, where, inner);
      // Where nothing was written, no guard has spoken.
      if (!row) await this.parts.checks.requireCurrent(runner, entity, proofs);
      return row;
    };
    if (manager.queryRunner?.isTransactionActive) return work(manager);
    return this.parts.dialect === 'postgres' ? this.#onOneConnection(work) : manager.transaction(work);
  }

  /** A row that UPDATE returns, read by TypeORM as if it were the table's only one. */
  #inOneStatement(
    entity: FencedEntity,
    proofs: readonly Proof[],
    where: ObjectLiteral,
    manager: EntityManager,
  ): Promise<ObjectLiteral | null> {
    const names: Record<string, unknown> = {};
    const sql = this.parts.stamps.statement(entity, proofs, where, (value, i) => {
      names[`stamped_key_${i}`] = value;
      return `:stamped_key_${i}`;
    });
    const builder = manager.createQueryBuilder<ObjectLiteral>(entity.target, entity.name);
    builder.addCommonTableExpression(`${sql} RETURNING *`, STAMPED).setParameters(names);
    const { mainAlias } = builder.expressionMap;
    if (mainAlias) mainAlias.tablePath = STAMPED;
    return builder.setFindOptions({ where }).getOne();
  }

  /** The stamp locks the row, so nothing comes between. */
  async #inTwo(
    entity: FencedEntity,
    proofs: readonly Proof[],
    where: ObjectLiteral,
    manager: EntityManager,
  ): Promise<ObjectLiteral | null> {
    const wasThere = await this.parts.stamps.write(manager.queryRunner as QueryRunner, entity, proofs, where);
    return wasThere ? manager.findOne<ObjectLiteral>(entity.target, { where }) : null;
  }

  async #onOneConnection<T>(work: (manager: EntityManager) => Promise<T>): Promise<T> {
    const runner = this.parts.createRunner();
    try {
      return await work(runner.manager);
    } finally {
      await runner.release();
    }
  }

  #proofs(entity: FencedEntity, where: ObjectLiteral): readonly Proof[] {
    const key = entity.keyOf(where);
    const known = key === null ? null : this.parts.proofs.forKey(entity, key);
    const proofs = key === null ? this.parts.proofs.forEntity(entity) : known ? [known] : [];
    if (proofs.length > 0) return proofs;
    throw this.parts.refusals.noToken({ entity, path: 'readAndFence()', key });
  }
}

/** @throws {LockConfigInvalidError} it does not name one row */
function requireId({ metadata, name }: FencedEntity, id: unknown): ObjectLiteral {
  const where = typeof id === 'object' && id !== null ? (id as ObjectLiteral) : idMap(metadata, id);
  const missing = metadata.primaryColumns.find((column) => column.getEntityValue(where) == null);
  if (!missing) return metadata.getEntityIdMap(where) as ObjectLiteral;
  throw new LockConfigInvalidError(
    `readAndFence(${name}) needs the id of one row, and <${missing.propertyPath}> is missing. Nothing was read.`,
  );
}

function idMap({ primaryColumns }: EntityMetadata, id: unknown): ObjectLiteral {
  const [column, another] = primaryColumns;
  return column && !another ? column.createValueMap(id) : {};
}
