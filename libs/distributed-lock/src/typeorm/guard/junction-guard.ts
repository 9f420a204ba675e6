import type {
  EntityMetadata,
  EntitySubscriberInterface,
  ObjectLiteral,
  QueryRunner,
  RemoveEvent,
} from 'typeorm';

import type { Admission } from './admission.js';
import type { StatementBuilder } from './builders.js';
import type { FencedEntity, FencedJunction } from '../entities/index.js';
import { currentOperation, type Operation, type Stamp } from './operations.js';
import { override } from './override.js';
import type { Proof } from './proof.js';
import type { Proofs } from './proofs.js';
import type { Refusals } from './refusals.js';
import type { RowStamps } from './row-stamps.js';
import { unfencedReason } from './unfenced.js';

export interface JunctionGuardParts {
  readonly admission: Admission;
  readonly proofs: Proofs;
  readonly refusals: Refusals;
  readonly stamps: RowStamps;
}

type Lets = Pick<Stamp, 'table' | 'verb'>;

const PATH = 'save() of a many-to-many relation';

/**
 * Junction rows have no token column, so the row that they belong to is stamped before they are written. Of new ones no
 * hook is told; they are seen when their statement is built.
 */
export class JunctionGuard implements EntitySubscriberInterface {
  readonly #junctions: ReadonlyMap<EntityMetadata, FencedJunction>;

  constructor(
    junctions: readonly FencedJunction[],
    private readonly parts: JunctionGuardParts,
  ) {
    this.#junctions = new Map(junctions.map((junction) => [junction.metadata, junction]));
  }

  readonly follow = (builder: StatementBuilder): void => {
    const build = builder.createInsertExpression.bind(builder);
    override(builder, 'createInsertExpression', () => {
      const { mainAlias, valuesSet } = builder.expressionMap;
      const junction = mainAlias?.hasMetadata ? this.#junctions.get(mainAlias.metadata) : undefined;
      const operation = currentOperation();
      if (junction && operation) this.#stampAll(junction, [valuesSet ?? []].flat(), 'INSERT', operation);
      return build();
    });
  };

  beforeRemove({ metadata, entityId }: RemoveEvent<ObjectLiteral>): void {
    const junction = this.#junctions.get(metadata);
    const operation = currentOperation();
    const row = entityId as ObjectLiteral | undefined;
    if (junction && operation && row) this.#stampAll(junction, [row], 'DELETE', operation);
  }

  #stampAll(
    { owner, metadata, ownerIdOf }: FencedJunction,
    rows: readonly ObjectLiteral[],
    verb: Stamp['verb'],
    operation: Operation,
  ): void {
    const lets = { table: metadata.tablePath, verb };
    const ids = new Map(rows.map(ownerIdOf).map((id) => [JSON.stringify(id), id]));
    for (const id of ids.values()) {
      const stamp = this.#stamp(owner, id, lets, operation);
      if (stamp) operation.stamps.push(stamp);
    }
  }

  /** Null where none is demanded. */
  #stamp(owner: FencedEntity, id: ObjectLiteral, lets: Lets, { inserts }: Operation): Stamp | null {
    const { proofs, stamps, refusals } = this.parts;
    const key = owner.keyOf(id);
    const shown = key === null ? proofs.forEntity(owner) : [proofs.forKey(owner, key) ?? []].flat();
    if (shown.length > 0) return this.#inTransaction(stamps.stamp(owner, shown, id, lets), shown);
    if (owner.unfencedWrites !== 'refuse' || unfencedReason() !== undefined) return null;
    // A new row needs no lock while its key was never locked, and what belongs to it comes with it.
    if (key === null || !inserts.has(owner)) throw refusals.noToken({ entity: owner, path: PATH, key });
    return this.#inTransaction(stamps.stampNew(owner, proofs.qualifiedKeys(key), id, lets), []);
  }

  #inTransaction(stamp: Stamp, shown: readonly Proof[]): Stamp {
    return { ...stamp, run: (runner) => this.#run(stamp, shown, runner) };
  }

  async #run(stamp: Stamp, proofs: readonly Proof[], runner: QueryRunner): Promise<void> {
    if (!runner.isTransactionActive) {
      throw this.parts.refusals.unguarded(
        { entity: stamp.entity, path: PATH },
        'It takes two statements, which need a transaction: leave out { transaction: false }.',
      );
    }
    await this.parts.admission.admit(stamp.entity, proofs, runner);
    await stamp.run(runner);
  }
}
