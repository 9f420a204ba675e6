import { LockConfigInvalidError } from '../../core/index.js';
import type { Dialect } from './dialect.js';

/**
 * A text literal that no content can break out of.
 *
 * Where TypeORM takes an expression it takes no parameters, and it reads `:name` in it as one; hexadecimal digits mean
 * nothing to anybody. On MySQL it is the bytes of the text: what is compared with them is compared by bytes.
 */
export function textLiteral(dialect: Dialect, text: string): string {
  const hex = Buffer.from(text, 'utf8').toString('hex');
  switch (dialect) {
    case 'postgres':
      return `convert_from(decode('${hex}', 'hex'), 'UTF8')`;
    case 'sqlite':
      return `CAST(X'${hex}' AS TEXT)`;
    case 'mysql':
      return `X'${hex}'`;
  }
}

/** `expression` as text whose comparisons go by bytes, whatever character set and collation the column has. */
export function asBinaryText(dialect: Dialect, expression: string): string {
  switch (dialect) {
    case 'postgres':
      return `CAST(${expression} AS TEXT) COLLATE "C"`;
    case 'sqlite':
      return `CAST(${expression} AS TEXT) COLLATE BINARY`;
    case 'mysql': // even its binary collations find 'a' and 'a ' equal
      return `CAST(CONVERT(${expression} USING utf8mb4) AS BINARY)`;
  }
}

/** The name as it stands in the database, whatever it is. */
export function quoteName(dialect: Dialect, name: string): string {
  const quote = dialect === 'mysql' ? '`' : '"';
  return quote + name.replaceAll(quote, quote + quote) + quote;
}

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_$]{0,62}$/;

/** @throws {LockConfigInvalidError} the name is not a plain identifier */
export function quoteIdentifier(dialect: Dialect, name: string): string {
  if (IDENTIFIER.test(name)) return quoteName(dialect, name);
  throw new LockConfigInvalidError(
    `${JSON.stringify(name)} cannot name a schema or table of locks; use letters, digits and underscores.`,
  );
}
