import type { QueryRunner } from 'typeorm';

import type { Lease } from '../../core/index.js';
import { type Dialect, storedKey, textLiteral } from '../sql/index.js';

/** What the fence knows of a key. */
export interface FenceRow {
  readonly storeId: string;
  readonly token: number;
  readonly ownerId: string;
}

/** A token with its owner, to be put into a fence. An unknown owner is the empty text, until it comes itself. */
export type FenceClaim = Pick<Lease, 'qualifiedKey' | 'storeId' | 'token' | 'ownerId'>;

type Rows = readonly Readonly<Record<string, unknown>>[];

/** The statements about one fence table: one row for each key, with the token and owner of its newest hold. */
export class FenceRows {
  constructor(
    private readonly dialect: Dialect,
    private readonly table: string,
  ) {}

  /**
   * Raises the row to the claim's token, in one atomic step. False when it is higher, of another known owner with the
   * same token, or of another store.
   */
  async raise(runner: QueryRunner, claim: FenceClaim): Promise<boolean> {
    return ((await runner.query(this.#raiseStatement(claim))) as Rows).length === 1;
  }

  /** As {@link raise}, on a connection of ours, with all waiting in the server bounded. */
  async raiseWithin(session: QueryRunner, claim: FenceClaim, timeoutMs: number): Promise<boolean> {
    if (this.dialect === 'sqlite') return this.raise(session, claim);
    // One message is one transaction: the limits end with it, whatever pooler stands in between.
    const limitMs = Math.max(1, Math.floor(timeoutMs));
    const client = (await session.connect()) as { query(sql: string): Promise<{ readonly rows: Rows }[]> };
    const limits = `SET LOCAL lock_timeout = ${limitMs}; SET LOCAL statement_timeout = ${limitMs}`;
    const results = await client.query(`${limits}; ${this.#raiseStatement(claim)}`);
    return results.at(-1)?.rows.length === 1;
  }

  async read(runner: QueryRunner, qualifiedKey: string): Promise<FenceRow | null> {
    const [row] = await this.#select(runner, qualifiedKey, '');
    return row ?? null;
  }

  /**
   * Keeps the row as it is until the transaction of `runner` ends. False when it is no longer this lease's.
   *
   * SQLite has no share locks: the transaction becomes the only writer of the whole database.
   */
  async pin(runner: QueryRunner, { qualifiedKey, token, ownerId }: Lease): Promise<boolean> {
    if (this.dialect === 'sqlite') await runner.query(this.#touchStatement(qualifiedKey));
    const [row] = await this.#select(runner, qualifiedKey, this.dialect === 'postgres' ? ' FOR SHARE' : '');
    return row?.token === token && row.ownerId === ownerId;
  }

  async #select(runner: QueryRunner, qualifiedKey: string, lock: string): Promise<FenceRow[]> {
    const rows = (await runner.query(
      `SELECT "store_id", "token", "owner_id" FROM ${this.table} WHERE "key" = ${this.#key(qualifiedKey)}${lock}`,
    )) as Rows;
    return rows.map((row) => ({
      storeId: String(row['store_id']),
      token: Number(row['token']),
      ownerId: String(row['owner_id']),
    }));
  }

  #raiseStatement({ qualifiedKey, storeId, token, ownerId }: FenceClaim): string {
    const values = [this.#key(qualifiedKey), this.#text(storeId), String(token), this.#text(ownerId)];
    return (
      `INSERT INTO ${this.table} AS fence ("key", "store_id", "token", "owner_id") VALUES (${values.join(', ')}) ` +
      'ON CONFLICT ("key") DO UPDATE SET "token" = excluded."token", "owner_id" = excluded."owner_id" ' +
      'WHERE fence."store_id" = excluded."store_id" AND (fence."token" < excluded."token" ' +
      `OR (fence."token" = excluded."token" AND fence."owner_id" IN (excluded."owner_id", ''))) RETURNING "token"`
    );
  }

  #touchStatement(qualifiedKey: string): string {
    return `UPDATE ${this.table} SET "token" = "token" WHERE "key" = ${this.#key(qualifiedKey)}`;
  }

  #key(qualifiedKey: string): string {
    return this.#text(storedKey(qualifiedKey));
  }

  #text(text: string): string {
    return textLiteral(this.dialect, text);
  }
}
