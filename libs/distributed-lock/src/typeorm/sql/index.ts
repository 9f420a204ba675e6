export { type Dialect, dialectOf } from './dialect.js';
export { asBinaryText, quoteIdentifier, textLiteral } from './sql-text.js';
export { type SqlWrite, type WriteVerb, writesOf } from './sql-writes.js';
export { storedKey } from './stored-key.js';
export { driverCode, retryTransient } from './transient.js';
