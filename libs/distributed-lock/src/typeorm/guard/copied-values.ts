import type { DataSource, ObjectLiteral, SelectQueryBuilder, UpdateQueryBuilder } from 'typeorm';

import { override } from './override.js';

/**
 * Makes update query builders work on copies of the values that they are given.
 *
 * Guards are put among these values, and the object belongs to the user: it may be frozen, or serve several updates under
 * several locks at once.
 */
export function copyUpdatedValues(dataSource: DataSource): void {
  const create = (dataSource as unknown as { createQueryBuilder: CreateBuilder }).createQueryBuilder.bind(
    dataSource,
  );
  const copying = (...args: unknown[]): AnyBuilder => copyOnUpdate(create(...args));
  override(dataSource, 'createQueryBuilder', copying as unknown as DataSource['createQueryBuilder']);
}

type AnyBuilder = SelectQueryBuilder<ObjectLiteral>;
type StartUpdate = (...args: unknown[]) => UpdateQueryBuilder<ObjectLiteral>;
type CreateBuilder = (...args: unknown[]) => AnyBuilder;

function copyOnUpdate(builder: AnyBuilder): AnyBuilder {
  const update = (builder as unknown as { update: StartUpdate }).update.bind(builder);
  const copying = (...args: unknown[]): UpdateQueryBuilder<ObjectLiteral> => copyOnSet(update(...args));
  override(builder, 'update', copying as AnyBuilder['update']);
  return builder;
}

function copyOnSet(builder: UpdateQueryBuilder<ObjectLiteral>): UpdateQueryBuilder<ObjectLiteral> {
  const { expressionMap } = builder;
  if (expressionMap.valuesSet) expressionMap.valuesSet = { ...expressionMap.valuesSet };
  const set = builder.set.bind(builder);
  override(builder, 'set', (values) => set({ ...values }));
  return builder;
}
