export {
  FencedBy,
  type FencedByOptions,
  LockTokenColumn,
  lockTokenColumn,
  type UnfencedWrites,
  fenceNotes,
} from './fenced-by.js';
export { fencedEntitiesOf } from './fenced-entities.js';
export { type FencedJunction, fencedJunctionsOf } from './fenced-junctions.js';
export { type ColumnMetadata, type FencedEntity } from './fenced-entity.js';
