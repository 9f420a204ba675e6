export { createOnce } from './create-once.js';
export { inOwnSession, openOwnConnection, requireSharedDatabase } from './own-connection.js';
export { prepareMysqlSession } from './own-mysql.js';
export { requirePrimaryReads } from './primary-reads.js';
export { cut, type ServerConnection } from './server-connection.js';
export { SqliteConnection } from './sqlite-connection.js';
export { type Turns, noTurns } from './turns.js';
