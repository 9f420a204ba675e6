import type { DataSource, EntityManager, EntityMetadata, EntityTarget } from 'typeorm';

import type { FencedEntity } from '../entities/index.js';
import type { FenceChecks } from './fence-checks.js';
import type { Operation } from './operations.js';
import type { Proof } from './proof.js';
import type { Proofs } from './proofs.js';

export interface UnchangedSavesParts {
  readonly dataSource: DataSource;
  readonly entityOf: (metadata: EntityMetadata) => FencedEntity | undefined;
  readonly proofs: Proofs;
  readonly checks: FenceChecks;
}

/**
 * A save() that finds nothing to change sends no write, and so no guard. The fence is asked all the same, so that a stale
 * owner is stopped whatever the data happen to be. Without a lock it passes: nothing was written.
 */
export class UnchangedSaves {
  constructor(private readonly parts: UnchangedSavesParts) {}

  /** @throws {FencedOutError} a newer owner of a row that save() was given is there */
  async check(
    manager: EntityManager,
    target: unknown,
    rows: readonly object[],
    { guarded }: Operation,
  ): Promise<void> {
    const shown = new Map<string, { entity: FencedEntity; proof: Proof }>();
    for (const row of rows) {
      const found = guarded.has(row) ? undefined : this.#proofOf(row, target ?? row.constructor);
      if (found) shown.set(found.proof.qualifiedKey, found);
    }
    if (shown.size === 0) return;
    const runner = manager.queryRunner ?? this.parts.dataSource.createQueryRunner();
    try {
      for (const { entity, proof } of shown.values())
        await this.parts.checks.requireCurrent(runner, entity, [proof]);
    } finally {
      if (runner !== manager.queryRunner) await runner.release();
    }
  }

  #proofOf(row: object, target: unknown): { entity: FencedEntity; proof: Proof } | undefined {
    const { dataSource, entityOf, proofs } = this.parts;
    const known = target as EntityTarget<object>;
    const entity = dataSource.hasMetadata(known) ? entityOf(dataSource.getMetadata(known)) : undefined;
    const key = entity?.keyOf(row) ?? null;
    const proof = entity && key !== null ? proofs.forKey(entity, key) : null;
    return entity && proof ? { entity, proof } : undefined;
  }
}
