export { runStatements } from './run-statements.js';
export { dataSourceOf, tableName } from './table-name.js';
export { makeWritesKnown } from './known-writes.js';
export {
  addLockTokenColumn,
  addLockTokenColumnSql,
  dropLockTokenColumn,
  dropLockTokenColumnSql,
  type TokenColumnOptions,
} from './token-column.js';
export {
  installWriteTrigger,
  installWriteTriggerSql,
  removeWriteTrigger,
  removeWriteTriggerSql,
  type WriteTriggerOptions,
} from './write-trigger.js';
