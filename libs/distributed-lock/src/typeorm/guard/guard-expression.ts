import { randomBytes } from 'node:crypto';

import { matchKey } from '../../core/index.js';
import { asBinaryText, type Dialect, driverCode, quoteName, storedKey, textLiteral } from '../sql/index.js';
import type { ColumnMetadata, FencedEntity } from '../entities/index.js';
import type { Proof } from './proof.js';

type GuardedColumn = Pick<ColumnMetadata, 'databaseName' | 'type'>;

/** What a guard has to know of a table. */
export interface GuardedRow extends Pick<FencedEntity, 'template'> {
  readonly keyColumns: readonly GuardedColumn[];
  readonly tokenColumn: Pick<ColumnMetadata, 'databaseName'>;
}

/**
 * A MySQL session whose sql_mode is not strict would turn NULL into 0, and cut a key short that is too long for its column.
 * All its guarded writes fail instead: this overflows in every mode.
 */
const UNLESS_STRICT = "WHEN INSTR(@@sql_mode, 'STRICT_') = 0 THEN 18446744073709551615 + 1";
const OVERFLOW = /18446744073709551615 \+ 1\b/;

/** True when a guard of MySQL failed because its session is not strict. */
export function isLaxSession(error: unknown): boolean {
  return driverCode(error) === 'ER_DATA_OUT_OF_RANGE' && OVERFLOW.test(String(error));
}

const SHARE_LOCK: Readonly<Record<Dialect, string>> = {
  postgres: ' FOR SHARE',
  sqlite: '',
  mysql: ' LOCK IN SHARE MODE',
};

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
  forUpdate(entity: GuardedRow, proofs: readonly Proof[]): string {
    const cases = proofs.map(
      (proof) => `WHEN ${this.#rowIs(entity, proof)} AND ${this.#fenceIs(proof)} THEN ${proof.token}`,
    );
    return this.#case('held', cases.join(' '));
  }

  /** For a new row of the key that the proof is about. */
  forInsert(proof: Proof): string {
    return this.#case('held', `WHEN ${this.#fenceIs(proof)} THEN ${proof.token}`);
  }

  /** For a new row that no lock protects: as long as its key was never locked. */
  forFreeInsert(qualifiedKeys: readonly string[]): string {
    const keys = qualifiedKeys.map((key) => this.#key(key)).join(', ');
    const fences = `SELECT 1 FROM ${this.fenceTable} WHERE ${this.#name('key')} IN (${keys})`;
    return this.#case('free', `WHEN NOT EXISTS (${fences}) THEN 0`);
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

  #rowIs({ template, keyColumns, tokenColumn }: GuardedRow, { key, token }: Proof): string {
    const values = matchKey(template, key) ?? [];
    const parts = values.map((value, i) => this.#columnIs(keyColumns[i] as GuardedColumn, value));
    return [...parts, `${this.#name(tokenColumn.databaseName)} <= ${token}`].join(' AND ');
  }

  #columnIs(column: GuardedColumn, value: string): string {
    const isNumber = this.dialect !== 'postgres' && isBoolean(column);
    const stored = isNumber ? String(Number(value === 'true')) : value;
    return `${asBinaryText(this.dialect, this.#name(column.databaseName))} = ${textLiteral(this.dialect, stored)}`;
  }

  /** The share lock waits for a raise that is not committed yet; a plain read would pass before it. */
  #fenceIs({ qualifiedKey, token, ownerId }: Proof): string {
    const isOwner = `${this.#name('owner_id')} = ${textLiteral(this.dialect, ownerId ?? '')}`;
    const isMine = `${this.#name('token')} = ${token}${ownerId === null ? '' : ` AND ${isOwner}`}`;
    const isKey = `${this.#name('key')} = ${this.#key(qualifiedKey)}`;
    return `(SELECT ${isMine} FROM ${this.fenceTable} WHERE ${isKey}${SHARE_LOCK[this.dialect]})`;
  }

  #case(kind: 'held' | 'free', cases: string): string {
    const unlessStrict = this.dialect === 'mysql' ? `${UNLESS_STRICT} ` : '';
    return `${this.#mark(kind)} CASE ${unlessStrict}${cases} END`;
  }

  #name(name: string): string {
    return quoteName(this.dialect, name);
  }

  #key(qualifiedKey: string): string {
    return textLiteral(this.dialect, storedKey(qualifiedKey));
  }

  #mark(kind: 'held' | 'free'): string {
    return `/*lock ${kind} ${this.#nonce}*/`;
  }
}

function isBoolean({ type }: GuardedColumn): boolean {
  return type === Boolean || type === 'boolean' || type === 'bool';
}
