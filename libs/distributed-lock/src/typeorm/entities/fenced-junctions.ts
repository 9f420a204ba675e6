import type { DataSource, EntityMetadata, ObjectLiteral } from 'typeorm';

import type { FencedEntity } from './fenced-entity.js';

/** The table behind a many-to-many relation. Its rows are data of the entity whose lock protects them. */
export interface FencedJunction {
  readonly metadata: EntityMetadata;
  /** The side with `@JoinTable()` if it is fenced, else the other one. */
  readonly owner: FencedEntity;
  /** The id of the owner's row that a junction row belongs to. */
  readonly ownerIdOf: (junctionRow: ObjectLiteral) => ObjectLiteral;
}

export function fencedJunctionsOf(
  dataSource: DataSource,
  entities: readonly FencedEntity[],
): readonly FencedJunction[] {
  return dataSource.entityMetadatas.flatMap((metadata) => fencedJunctionOf(metadata, entities) ?? []);
}

function fencedJunctionOf(
  metadata: EntityMetadata,
  entities: readonly FencedEntity[],
): FencedJunction | undefined {
  if (!metadata.isJunction) return undefined;
  for (const columns of [metadata.ownerColumns, metadata.inverseColumns]) {
    const owner = entities.find((entity) => entity.metadata === columns[0]?.referencedColumn?.entityMetadata);
    if (!owner) continue;
    const ownerIdOf: FencedJunction['ownerIdOf'] = (row) => {
      const id: ObjectLiteral = {};
      for (const column of columns) column.referencedColumn?.setEntityValue(id, column.getEntityValue(row));
      return id;
    };
    return { metadata, owner, ownerIdOf };
  }
  return undefined;
}
