import type { DataSource, EntityMetadata } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { fencedEntityOf, type FencedEntity } from './fenced-entity.js';
import type { UnfencedWrites } from './fenced-by.js';

type ForeignKey = EntityMetadata['foreignKeys'][number];

/**
 * The fenced entities of a DataSource.
 *
 * @throws {LockConfigInvalidError} something in the model would let writes past the guards; says what to write
 */
export function fencedEntitiesOf(
  dataSource: DataSource,
  unfencedWrites: UnfencedWrites,
): readonly FencedEntity[] {
  const entities = dataSource.entityMetadatas.flatMap(
    (metadata) => fencedEntityOf(metadata, unfencedWrites) ?? [],
  );
  for (const entity of entities) {
    requireAllOfTable(entity, entities, dataSource.entityMetadatas);
    for (const foreignKey of entity.metadata.foreignKeys) requireNoCascade(entity, foreignKey, entities);
  }
  return entities;
}

/** Two entities on one table write the same rows. */
function requireAllOfTable(
  entity: FencedEntity,
  entities: readonly FencedEntity[],
  all: readonly EntityMetadata[],
): void {
  for (const metadata of all) {
    if (metadata.tablePath !== entity.metadata.tablePath) continue;
    const other = entities.find((candidate) => candidate.metadata === metadata);
    if (other?.template.text === entity.template.text) continue;
    throw new LockConfigInvalidError(
      `Entities ${entity.name} and ${metadata.name} share the table "${metadata.tableName}", and one lock has to protect a ` +
        `row whoever writes it. Write @FencedBy('${entity.template.text}') on their common base class.`,
    );
  }
}

/** The database itself writes rows of the child, past every guard; that is harmless under the parent's very lock. */
function requireNoCascade(
  child: FencedEntity,
  foreignKey: ForeignKey,
  entities: readonly FencedEntity[],
): void {
  const actions = [foreignKey.onDelete, foreignKey.onUpdate].filter((action) =>
    /CASCADE|SET/.test(action ?? ''),
  );
  const parent = entities.find(({ metadata }) => metadata === foreignKey.referencedEntityMetadata);
  if (actions.length === 0 || (parent && sameLock(child, parent, foreignKey))) return;
  throw new LockConfigInvalidError(
    `Rows of ${child.name} are written by the database itself (${actions.join(', ')}) when a row of ` +
      `${foreignKey.referencedEntityMetadata.name} goes or changes, and no lock is asked for. Remove that rule and remove ` +
      `the rows under their lock, or fence both by one key, e.g. '${child.template.text}' by way of the relation.`,
  );
}

function sameLock(
  child: FencedEntity,
  parent: FencedEntity,
  { columns, referencedColumns }: ForeignKey,
): boolean {
  if (child.template.literals.join('<>') !== parent.template.literals.join('<>')) return false;
  return child.keyColumns.every(
    (column, i) => referencedColumns[columns.indexOf(column)] === parent.keyColumns[i],
  );
}
