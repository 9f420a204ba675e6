export { type Dialect, dialectOf } from './dialect.js';
export { withMysqlLockLimit } from './mysql-lock-limit.js';
export { rowsMatched } from './rows-matched.js';
export { asBinaryText, quoteIdentifier, quoteName, textLiteral } from './sql-text.js';
export type { SqlWrite, WriteVerb } from './sql-write.js';
export { writesOf } from './sql-writes.js';
export { storedKey } from './stored-key.js';
export { driverCode, isSerializationFailure, isTransient, retryTransient } from './transient.js';
