import { driverCode } from '../sql/index.js';
import type { FencedEntity } from '../entities/index.js';

/** A value that a NOT NULL column refused, as the drivers of PostgreSQL, SQLite and MySQL call it. */
const REFUSED_NULL = /^(?:23502|SQLITE_CONSTRAINT_NOTNULL|ER_BAD_NULL_ERROR)$/;

interface RefusedNull {
  readonly message: string;
  /** PostgreSQL only. */
  readonly table?: string;
  readonly column?: string;
}

export function isRefusedNull(error: unknown): boolean {
  return REFUSED_NULL.test(driverCode(error));
}

/** True when it was the token column of this entity. */
export function isAboutToken({ metadata, tokenColumn }: FencedEntity, error: unknown): boolean {
  const { driverError } = error as { readonly driverError: RefusedNull };
  const { databaseName } = tokenColumn;
  switch (driverCode(error)) {
    case '23502':
      return driverError.table === metadata.tableName && driverError.column === databaseName;
    case 'ER_BAD_NULL_ERROR': // names the column only, in a sentence of the server's language
      return driverError.message.includes(`'${databaseName}'`);
    default:
      return driverError.message.endsWith(`: ${metadata.tableName}.${databaseName}`);
  }
}
