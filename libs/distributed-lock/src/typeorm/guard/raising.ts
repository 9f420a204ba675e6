import type { Dialect } from '../sql/index.js';

/**
 * A numeric expression that makes its statement fail, with `message` in the error, for a row for which it is evaluated.
 *
 * @param column of that row: what depends on no row, a database may evaluate ahead of all
 */
export function raising(dialect: Dialect, message: string, column: string): string {
  switch (dialect) {
    case 'postgres':
      return `CAST('${message} ' || ${column} AS bigint)`;
    case 'sqlite':
      return `json_extract('{}', '${message} ' || ${column})`;
    case 'mysql': // the message shows the expression that overflowed
      return `18446744073709551615 + CHAR_LENGTH(CONCAT('${message} ', ${column}))`;
  }
}
