import type { Dialect } from '../sql/index.js';

/**
 * A numeric expression that makes its statement fail, with `message` in the error, for a row for which it is evaluated.
 *
 * @param column of that row: what depends on no row, a database may evaluate ahead of all
 */
export function raising(dialect: Dialect, message: string, column: string): string {
  const text = `'${message} ' || ${column}`;
  return dialect === 'postgres' ? `CAST(${text} AS bigint)` : `json_extract('{}', ${text})`;
}
