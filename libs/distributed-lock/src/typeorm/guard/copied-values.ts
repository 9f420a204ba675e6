import type { EntityMetadata } from 'typeorm';

import type { StatementBuilder } from './builders.js';
import type { FencedEntity } from '../entities/index.js';
import { override } from './override.js';

/**
 * Makes an update query builder work on a copy of the values that it is given, with room for the guard before them all.
 *
 * Guards are put among these values, and the object belongs to the user: it may be frozen, or serve several updates under
 * several locks at once. A value in SQL may end in a comment, which takes everything behind it away: the other values and
 * the criteria, but not the guard.
 */
export function copyUpdatedValues(
  entityOf: (metadata: EntityMetadata) => FencedEntity | undefined,
): (builder: StatementBuilder) => void {
  return (builder) => {
    const { expressionMap } = builder;
    const copied = (values: object): object => {
      const { mainAlias } = expressionMap;
      const entity = mainAlias?.hasMetadata ? entityOf(mainAlias.metadata) : undefined;
      return { ...(entity && { [entity.tokenColumn.propertyName]: undefined }), ...values };
    };
    if (expressionMap.valuesSet) expressionMap.valuesSet = copied(expressionMap.valuesSet);
    const set = builder.set.bind(builder);
    override(builder, 'set', (values) => set(copied(values)));
  };
}
