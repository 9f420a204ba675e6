import { createHash } from 'node:crypto';

import type { QueryRunner } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import type { Dialect } from '../sql/index.js';

const NAME = /^[\p{L}_][\p{L}\p{N}_$-]*$/u;
/** PostgreSQL cuts longer names off, and MySQL and MariaDB refuse them. */
const LONGEST_NAME_BYTES = 63;
const DIGEST_CHARACTERS = 16;
const QUOTE: Readonly<Record<Dialect, string>> = { postgres: '"', sqlite: '"', mysql: '`' };

/** A table of the application, in the words of one database. */
export interface TableName {
  readonly name: string;
  /** Quoted, with its schema where one is given. */
  readonly quoted: string;
  /** Quotes the name of something that lies in the schema of the table. */
  beside(name: string): string;
}

/**
 * Reads `invoice` or `billing.invoice`.
 *
 * @throws {LockConfigInvalidError} it is neither
 */
export function tableName(dialect: Dialect, table: string): TableName {
  const [name, schema, more] = String(table).split('.').reverse();
  if (name === undefined || more !== undefined) refuse(table);
  const quotedSchema = schema === undefined ? '' : `${quoteName(dialect, schema)}.`;
  return {
    name,
    quoted: `${quotedSchema}${quoteName(dialect, name)}`,
    beside: (other) => `${quotedSchema}${quoteName(dialect, other)}`,
  };
}

/** The table as `runner` finds it: in the schema of its DataSource, unless another one is given. */
export function tableOf(runner: QueryRunner, table: string): string {
  const { schema } = dataSourceOf(runner).options as { readonly schema?: string };
  return schema === undefined || table.includes('.') ? table : `${schema}.${table}`;
}

/** TypeORM 0.3 knows it as `connection`. */
export function dataSourceOf(runner: QueryRunner): QueryRunner['dataSource'] {
  const { manager } = runner as { readonly manager: { dataSource?: unknown; connection?: unknown } };
  return (manager.dataSource ?? manager.connection) as QueryRunner['dataSource'];
}

/** @throws {LockConfigInvalidError} the name cannot be used */
export function quoteName(dialect: Dialect, name: string): string {
  if (!NAME.test(name) || Buffer.byteLength(name) > LONGEST_NAME_BYTES) refuse(name);
  return `${QUOTE[dialect]}${name}${QUOTE[dialect]}`;
}

/** A name for something that belongs to a table, as long as names may be. */
export function derivedName(prefix: string, name: string): string {
  const plain = `${prefix}_${name}`;
  if (Buffer.byteLength(plain) <= LONGEST_NAME_BYTES) return plain;
  return `${prefix}_${createHash('sha256').update(name).digest('hex').slice(0, DIGEST_CHARACTERS)}`;
}

function refuse(name: string): never {
  throw new LockConfigInvalidError(
    `${JSON.stringify(name)} cannot name a table, schema or column here; write "invoice" or "billing.invoice", in letters, ` +
      'digits, underscores and hyphens, of at most 63 bytes.',
  );
}
