import { LockConfigInvalidError } from '../../core/index.js';
import type { Dialect } from './dialect.js';

/**
 * A text literal that no content can break out of.
 *
 * Where TypeORM takes an expression it takes no parameters, and it reads `:name` in it as one; hexadecimal digits mean
 * nothing to anybody.
 */
export function textLiteral(dialect: Dialect, text: string): string {
  const hex = Buffer.from(text, 'utf8').toString('hex');
  return dialect === 'postgres' ? `convert_from(decode('${hex}', 'hex'), 'UTF8')` : `CAST(X'${hex}' AS TEXT)`;
}

/** `expression` as text whose comparisons go by bytes, whatever collation the column has. */
export function asBinaryText(dialect: Dialect, expression: string): string {
  return `CAST(${expression} AS TEXT) COLLATE ${dialect === 'postgres' ? '"C"' : 'BINARY'}`;
}

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_$]{0,62}$/;

/** @throws {LockConfigInvalidError} the name is not a plain identifier */
export function quoteIdentifier(name: string): string {
  if (IDENTIFIER.test(name)) return `"${name}"`;
  throw new LockConfigInvalidError(
    `${JSON.stringify(name)} cannot name a schema or table of locks; use letters, digits and underscores.`,
  );
}
