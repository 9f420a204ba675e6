import type { StatementBuilder } from './builders.js';
import { override } from './override.js';

/**
 * Makes an update query builder work on a copy of the values that it is given.
 *
 * Guards are put among these values, and the object belongs to the user: it may be frozen, or serve several updates under
 * several locks at once.
 */
export function copyUpdatedValues(builder: StatementBuilder): void {
  const { expressionMap } = builder;
  if (expressionMap.valuesSet) expressionMap.valuesSet = { ...expressionMap.valuesSet };
  const set = builder.set.bind(builder);
  override(builder, 'set', (values) => set({ ...values }));
}
