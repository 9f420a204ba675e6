import type { QueryRunner } from 'typeorm';

import {
  FencedOutError,
  StaleTokenError,
  TokenInvalidError,
  type TokenInQuestion,
} from '../../core/index.js';
import type { FenceRow, FenceRows } from '../fence/index.js';
import type { Dialect } from '../sql/index.js';
import { databaseMicros } from './database-clock.js';

/** How far clocks of servers may differ. A token from further ahead would lock honest owners out for as long. */
const FURTHEST_AHEAD_MICROS = 60_000_000;

/** Only the holder knows who it is. Its own raise, with the same token, puts its name here. */
const NOBODY_KNOWN = '';

/** Judges tokens that were handed over, by the fence of one database. */
export class TokenAcceptance {
  constructor(
    private readonly dialect: Dialect,
    private readonly rows: FenceRows,
  ) {}

  /**
   * `raised` when the token was ahead, and is now what the fence asks for.
   *
   * @throws {StaleTokenError} a higher one is there
   * @throws {FencedOutError} the fence was raised by another store, whose tokens do not compare
   * @throws {TokenInvalidError} it is ahead of the database's clock
   */
  async accept(
    session: QueryRunner,
    token: TokenInQuestion,
    timeoutMs: number,
  ): Promise<'newest' | 'raised'> {
    if (this.#isNewest(await this.rows.read(session, token.qualifiedKey), token)) return 'newest';
    await this.#requireFromThePast(session, token);
    if (await this.rows.raiseWithin(session, { ...token, ownerId: NOBODY_KNOWN }, timeoutMs)) return 'raised';
    // Somebody has raised it meanwhile, perhaps with this very token.
    if (this.#isNewest(await this.rows.read(session, token.qualifiedKey), token)) return 'newest';
    throw stale(token);
  }

  /** False when it is ahead. */
  #isNewest(row: FenceRow | null, token: TokenInQuestion): boolean {
    if (!row) return false;
    if (row.storeId !== token.storeId) throw ofAnotherStore(token, row);
    if (row.token > token.token) throw stale(token);
    return row.token === token.token;
  }

  /** Tokens of stores that count in microseconds cannot be from the future; all others are far below. */
  async #requireFromThePast(session: QueryRunner, { key, store, token }: TokenInQuestion): Promise<void> {
    if (token <= (await databaseMicros(session, this.dialect)) + FURTHEST_AHEAD_MICROS) return;
    throw new TokenInvalidError(
      `Token ${token}, handed over for "${key}", is more than ${FURTHEST_AHEAD_MICROS / 60_000_000} minute ahead of the ` +
        "database's clock, so no store has given it out. It was not believed and the work did not start; look at who sent it.",
      { key, store },
    );
  }
}

function stale({ key, store, token }: TokenInQuestion): StaleTokenError {
  return new StaleTokenError(
    `Token ${token} was handed over for "${key}", and a newer owner is there. The work did not start; stop the work that ` +
      'sent it, and read the data again.',
    { key, store, outcome: 'not-started' },
  );
}

function ofAnotherStore({ key, store, storeId }: TokenInQuestion, row: FenceRow): FencedOutError {
  return new FencedOutError(
    `A token was handed over for "${key}" as one of "${storeId}", and its fence was raised by the lock store "${row.storeId}". ` +
      'Tokens of two stores do not compare. The work did not start; name the store that the token is from, ' +
      'e.g. @AcceptFencingToken(key, { store }).',
    { key, store, outcome: 'not-started' },
  );
}
