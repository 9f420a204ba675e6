import type { DataSource, EntityMetadata, ObjectLiteral, SelectQueryBuilder } from 'typeorm';

import { override } from './override.js';

/** What TypeORM has collected for a statement, and the parts of its SQL that it builds from it. */
export interface StatementBuilder {
  readonly alias: string;
  readonly expressionMap: {
    readonly mainAlias?: { readonly hasMetadata: boolean; readonly metadata: EntityMetadata };
    readonly onUpdate?: { readonly overwrite?: unknown };
    valuesSet?: ObjectLiteral | ObjectLiteral[];
  };
  createWhereExpression(): string;
  createUpdateExpression(): string;
  createInsertExpression(): string;
  set(values: object): this;
}

type Start = 'update' | 'delete' | 'softDelete' | 'restore' | 'insert';

/** What is done to each builder of a kind before user code, or TypeORM itself, gets it. */
export type BuilderFollowers = Readonly<Record<Start, (builder: StatementBuilder) => void>>;

type AnyBuilder = SelectQueryBuilder<ObjectLiteral>;
type Create = (...args: unknown[]) => AnyBuilder;
type Begin = (...args: unknown[]) => StatementBuilder;

/** Every statement of TypeORM's own is built by one of these, also those of repositories and of save(). */
export function followBuilders(dataSource: DataSource, followers: BuilderFollowers): void {
  const create = (dataSource as unknown as { createQueryBuilder: Create }).createQueryBuilder.bind(
    dataSource,
  );
  const following: Create = (...args) => {
    const builder = create(...args);
    for (const start of Object.keys(followers) as Start[]) follow(builder, start, followers[start]);
    return builder;
  };
  override(dataSource, 'createQueryBuilder', following as unknown as DataSource['createQueryBuilder']);
}

function follow(builder: AnyBuilder, start: Start, follower: (builder: StatementBuilder) => void): void {
  const begin = (builder[start] as unknown as Begin).bind(builder);
  const following: Begin = (...args) => {
    const started = begin(...args);
    follower(started);
    return started;
  };
  override(builder, start, following as unknown as AnyBuilder[Start]);
}
