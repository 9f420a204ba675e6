import { randomBytes } from 'node:crypto';

import { matchKey } from '../../core/index.js';
import { asBinaryText, type Dialect, storedKey, textLiteral } from '../sql/index.js';
import type { ColumnMetadata, FencedEntity } from '../entities/index.js';
import type { Proof } from './proof.js';

/**
 * The values that guards give to the token column: the token while the database agrees, else NULL, which the column
 * refuses, and with it the whole statement.
 *
 * Each carries a mark that nobody else knows, so that a statement with a guard can be told from one without.
 */
export class GuardExpressions {
  readonly #nonce = randomBytes(12).toString('hex');

  constructor(
    private readonly dialect: Dialect,
    private readonly fenceTable: string,
  ) {}

  /** For rows that are there: each must be one that a proof is about, and not ahead of it. */
  forUpdate(entity: FencedEntity, proofs: readonly Proof[]): string {
    const cases = proofs.map(
      (proof) => `WHEN ${this.#rowIs(entity, proof)} AND ${this.#fenceIs(proof)} THEN ${proof.token}`,
    );
    return `${this.#mark('held')} CASE ${cases.join(' ')} END`;
  }

  /** For a new row of the key that the proof is about. */
  forInsert(proof: Proof): string {
    return `${this.#mark('held')} CASE WHEN ${this.#fenceIs(proof)} THEN ${proof.token} END`;
  }

  /** For a new row that no lock protects: as long as its key was never locked. */
  forFreeInsert(qualifiedKeys: readonly string[]): string {
    const keys = qualifiedKeys.map((key) => this.#key(key)).join(', ');
    const fences = `SELECT 1 FROM ${this.fenceTable} WHERE "key" IN (${keys})`;
    return `${this.#mark('free')} CASE WHEN NOT EXISTS (${fences}) THEN 0 END`;
  }

  /** For a new row whose key the database makes. */
  forKeyToCome(): string {
    return `${this.#mark('free')} 0`;
  }

  /** `held` and `free`: what kind of guard the statement carries, if any. */
  markIn(sql: string): 'held' | 'free' | null {
    if (sql.includes(this.#mark('held'))) return 'held';
    return sql.includes(this.#mark('free')) ? 'free' : null;
  }

  #rowIs({ template, keyColumns, tokenColumn }: FencedEntity, { key, token }: Proof): string {
    const values = matchKey(template, key) ?? [];
    const parts = values.map((value, i) => this.#columnIs(keyColumns[i] as ColumnMetadata, value));
    return [...parts, `"${tokenColumn.databaseName}" <= ${token}`].join(' AND ');
  }

  #columnIs(column: ColumnMetadata, value: string): string {
    const stored = this.dialect === 'sqlite' && isBoolean(column) ? String(Number(value === 'true')) : value;
    const name = `"${column.databaseName.replaceAll('"', '""')}"`;
    return `${asBinaryText(this.dialect, name)} = ${textLiteral(this.dialect, stored)}`;
  }

  /** The share lock waits for a raise that is not committed yet; a plain read would pass before it. */
  #fenceIs({ qualifiedKey, token, ownerId }: Proof): string {
    const owner = ownerId === null ? '' : ` AND "owner_id" = ${textLiteral(this.dialect, ownerId)}`;
    const share = this.dialect === 'postgres' ? ' FOR SHARE' : '';
    return (
      `(SELECT "token" = ${token}${owner} FROM ${this.fenceTable} ` +
      `WHERE "key" = ${this.#key(qualifiedKey)}${share})`
    );
  }

  #key(qualifiedKey: string): string {
    return textLiteral(this.dialect, storedKey(qualifiedKey));
  }

  #mark(kind: 'held' | 'free'): string {
    return `/*lock ${kind} ${this.#nonce}*/`;
  }
}

function isBoolean({ type }: ColumnMetadata): boolean {
  return type === Boolean || type === 'boolean' || type === 'bool';
}
