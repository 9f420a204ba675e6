import type { QueryRunner } from 'typeorm';

import type { Lease } from '../../core/index.js';
import type { Dialect } from '../sql/index.js';
import { type FenceClaim, fenceStatements, type FenceStatements } from './fence-statements.js';

/** What the fence knows of a key. */
export interface FenceRow {
  readonly storeId: string;
  readonly token: number;
  readonly ownerId: string;
}

type Rows = readonly Readonly<Record<string, unknown>>[];

/** Shorter limits would be over before a server that is well has answered. */
const SHORTEST_LIMIT_MS = 1;

/** The rows of one fence table: one for each key, with the token and owner of its newest hold. */
export class FenceRows {
  readonly #statements: FenceStatements;

  constructor(
    private readonly dialect: Dialect,
    table: string,
  ) {
    this.#statements = fenceStatements(dialect, table);
  }

  /**
   * Raises the row to the claim's token, in one atomic step. False when it is higher, of another known owner with the
   * same token, or of another store.
   */
  raise(runner: QueryRunner, claim: FenceClaim): Promise<boolean> {
    return this.#raise(runner, claim, '');
  }

  /** As {@link raise}, on a connection of ours, with all waiting in the server bounded. */
  async raiseWithin(session: QueryRunner, claim: FenceClaim, timeoutMs: number): Promise<boolean> {
    const limitMs = Math.max(SHORTEST_LIMIT_MS, Math.floor(timeoutMs));
    if (this.dialect === 'sqlite') return this.raise(session, claim);
    // MySQL reads it as a comment, and keeps to the limit for locks that all our connections have.
    if (this.dialect === 'mysql')
      return this.#raise(
        session,
        claim,
        `/*M! SET STATEMENT max_statement_time = ${limitMs / 1_000} FOR */ `,
      );
    // One message is one transaction: the limits end with it, whatever pooler stands in between.
    const client = (await session.connect()) as { query(sql: string): Promise<{ readonly rows: Rows }[]> };
    const limits = `SET LOCAL lock_timeout = ${limitMs}; SET LOCAL statement_timeout = ${limitMs}`;
    const results = await client.query(`${limits}; ${this.#statements.raise(claim)}`);
    return results.at(-1)?.rows.length === 1;
  }

  read(runner: QueryRunner, qualifiedKey: string): Promise<FenceRow | null> {
    return this.#select(runner, this.#statements.read(qualifiedKey));
  }

  /**
   * Keeps the row as it is until the transaction of `runner` ends. False when it is no longer this lease's.
   *
   * SQLite has no share locks: the transaction becomes the only writer of the whole database.
   */
  async pin(runner: QueryRunner, { qualifiedKey, token, ownerId }: Lease): Promise<boolean> {
    if (this.dialect === 'sqlite') await runner.query(this.#statements.touch(qualifiedKey));
    const row = await this.#select(runner, this.#statements.pin(qualifiedKey));
    return row?.token === token && row.ownerId === ownerId;
  }

  async #raise(runner: QueryRunner, claim: FenceClaim, limit: string): Promise<boolean> {
    const answer: unknown = await runner.query(limit + this.#statements.raise(claim));
    if (this.dialect !== 'mysql') return (answer as Rows).length === 1;
    // What the row is now, and not as an old snapshot has it. If somebody has raised it since, this claim is stale.
    const row = await this.#select(runner, this.#statements.pin(claim.qualifiedKey));
    return row?.storeId === claim.storeId && row.token === claim.token && row.ownerId === claim.ownerId;
  }

  async #select(runner: QueryRunner, sql: string): Promise<FenceRow | null> {
    const [row] = (await runner.query(sql)) as Rows;
    return row
      ? { storeId: String(row['store_id']), token: Number(row['token']), ownerId: String(row['owner_id']) }
      : null;
  }
}
