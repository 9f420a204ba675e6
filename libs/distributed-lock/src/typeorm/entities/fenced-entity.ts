import type { EntityMetadata } from 'typeorm';

import { LockConfigInvalidError, renderKey, type KeyTemplate } from '../../core/index.js';
import { fenceNotes, type UnfencedWrites } from './fenced-by.js';

export type ColumnMetadata = EntityMetadata['columns'][number];

/** Types whose text in the database differs from the text of their value in a key. */
const NOT_IN_KEYS =
  /date|time|interval|json|blob|bytea|binary|decimal|numeric|float|double|real|money|array|simple|point|range|^inet$|cidr/;

/** An entity whose rows are protected by locks, as one DataSource knows it. */
export class FencedEntity {
  readonly name: string;
  readonly target: EntityMetadata['target'];

  constructor(
    readonly metadata: EntityMetadata,
    /** The lock key of a row. */
    readonly template: KeyTemplate,
    /** The column of each placeholder, in order. */
    readonly keyColumns: readonly ColumnMetadata[],
    readonly tokenColumn: ColumnMetadata,
    readonly unfencedWrites: UnfencedWrites,
  ) {
    this.name = metadata.name;
    this.target = metadata.target;
  }

  /**
   * The key of the lock that protects this row; null when a part of it has no value (yet).
   *
   * @throws {LockKeyInvalidError} a value cannot be part of a key
   */
  keyOf(row: object): string | null {
    const parts = this.keyColumns.map((column): unknown => column.getEntityValue(row));
    if (parts.some((part) => part === undefined || part === null)) return null;
    let i = 0;
    return renderKey(this.template, () => parts[i++]);
  }

  /** True when what the key lacks will be made by the database for this row alone, so that nobody can have locked it. */
  getsItsKey(row: object): boolean {
    const missing = this.keyColumns.filter((column) => column.getEntityValue(row) == null);
    const isMade = (column: ColumnMetadata): boolean =>
      column.isGenerated || typeof column.default === 'function';
    return missing.every(isMade) && missing.some((column) => column.isGenerated || this.#isUnique(column));
  }

  /** True when `values` name a column of the key. */
  touchesKey(values: object): boolean {
    return this.keyColumns.some((column) => column.getEntityValue(values) !== undefined);
  }

  #isUnique(column: ColumnMetadata): boolean {
    const { primaryColumns, uniques, indices } = this.metadata;
    const uniqueIndices = indices.filter(({ isUnique, where }) => isUnique && !where);
    const keys = [{ columns: primaryColumns }, ...uniques, ...uniqueIndices];
    return keys.some(({ columns }) => columns.length === 1 && columns[0] === column);
  }
}

/**
 * The fenced entity behind `metadata`; null for one that is not fenced.
 *
 * @throws {LockConfigInvalidError} the decorators do not fit the entity; says what to write
 */
export function fencedEntityOf(
  metadata: EntityMetadata,
  unfencedWritesByDefault: UnfencedWrites,
): FencedEntity | null {
  const { fencedBy, tokenProperty } = fenceNotes(metadata);
  if (!fencedBy && tokenProperty === undefined) return null;
  if (!fencedBy) {
    refuse(metadata, `has a @LockTokenColumn() but no lock; write @FencedBy('…:<id>') above the class`);
  }
  const tokenColumn = metadata.columns.find((column) => column.propertyPath === tokenProperty);
  if (!tokenColumn) {
    refuse(metadata, 'is @FencedBy and has no token column; write @LockTokenColumn() lockToken!: number;');
  }
  if (metadata.treeType) refuse(metadata, 'is a tree, which TypeORM writes past every hook; do not fence it');
  const { template, unfencedWrites = unfencedWritesByDefault } = fencedBy;
  const keyColumns = template.placeholders.map(({ source }) => keyColumn(metadata, template, source));
  for (const column of [tokenColumn, ...keyColumns]) requireOneProperty(metadata, column);
  return new FencedEntity(metadata, template, keyColumns, tokenColumn, unfencedWrites);
}

/** What is written through the other one would pass every check, and on most databases the last of two values counts. */
function requireOneProperty(metadata: EntityMetadata, { databaseName, propertyPath }: ColumnMetadata): void {
  const twin = metadata.columns.find(
    (column) => column.databaseName === databaseName && column.propertyPath !== propertyPath,
  );
  if (twin) {
    refuse(
      metadata,
      `writes its column "${databaseName}" as <${propertyPath}> and as <${twin.propertyPath}>; keep the first`,
    );
  }
}

function keyColumn(metadata: EntityMetadata, template: KeyTemplate, source: string): ColumnMetadata {
  const column = metadata.columns.find((candidate) => pathsOf(candidate).includes(source));
  if (!column) {
    const known = metadata.columns.map((each) => `<${pathsOf(each).at(-1)}>`).join(', ');
    refuse(metadata, `is @FencedBy('${template.text}') and has no column for <${source}>; it has ${known}`);
  }
  const type = typeof column.type === 'function' ? column.type.name.toLowerCase() : column.type;
  if (column.transformer || column.isArray || NOT_IN_KEYS.test(type)) {
    refuse(
      metadata,
      `is @FencedBy('${template.text}'), but the database writes <${source}> in another way than a key does; ` +
        'use a text, integer, uuid or boolean column without transformer',
    );
  }
  if (!column.isInsert || column.asExpression !== undefined) {
    refuse(
      metadata,
      `needs <${source}> for its key as the entity has it, and the database makes it; remove insert: false and asExpression from it`,
    );
  }
  if (!column.isSelect) refuse(metadata, `needs <${source}> for its key; remove select: false from it`);
  return column;
}

/** The names under which a placeholder may mean this column. */
function pathsOf(column: ColumnMetadata): string[] {
  const { relationMetadata: relation, referencedColumn: referenced, propertyPath } = column;
  return relation && referenced
    ? [propertyPath, `${relation.propertyPath}.${referenced.propertyPath}`]
    : [propertyPath];
}

function refuse(metadata: EntityMetadata, why: string): never {
  throw new LockConfigInvalidError(`Entity ${metadata.name} ${why}.`);
}
