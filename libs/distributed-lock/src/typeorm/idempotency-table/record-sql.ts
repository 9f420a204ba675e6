import type { RecordEnding } from '../../idempotency/index.js';

/** What PostgreSQL and SQLite say differently. */
export interface SqlSpeech {
  /** The same throughout a statement, so that no clause of it finds another time than the one before. */
  readonly now: string;
  readonly nowMicros: string;
  readonly larger: 'greatest' | 'max';
  /** The parameter of that number, as text or as a number. */
  readonly text: (number: number) => string;
  readonly number: (number: number) => string;
  /** The time that many milliseconds from now. */
  readonly after: (ms: string) => string;
  readonly msUntil: (time: string) => string;
}

/** A statement and its parameters. */
export interface Sql {
  readonly sql: string;
  readonly parameters: unknown[];
}

/** How long an expired row stays, so that a row made anew in the same tick of the clock still gets a higher fence. */
const PURGE_MARGIN_MS = 50;

/** The statements that PostgreSQL and SQLite share. */
export class RecordSql {
  constructor(
    private readonly table: string,
    private readonly speech: SqlSpeech,
  ) {}

  get columns(): string {
    const { msUntil } = this.speech;
    return (
      `state, owner_id, CAST(fence AS TEXT) AS fence, attempt, taken_over, fingerprint, label, ` +
      `${msUntil('leased_until')} AS lease_ms, ${msUntil('expires_at')} AS expires_in_ms, outcome, codec, body`
    );
  }

  /** Parameters: id, owner, fingerprint, lease, lease and keep, take over (1 or 0), most attempts, label. */
  get upsert(): string {
    const { now, nowMicros, larger, text, number, after } = this.speech;
    const expired = `held.expires_at <= ${now}`;
    const running = `held.state = 'running' AND held.expires_at > ${now}`;
    const mine = `(${running} AND COALESCE(held.owner_id, '') = excluded.owner_id)`;
    const lapsed = `(${running} AND held.leased_until <= ${now} AND NOT ${mine})`;
    const givesUp = `(${lapsed} AND NOT (${number(6)} = 1 AND held.attempt < ${number(7)}))`;
    const stays = `${givesUp} OR ${mine}`;
    return `
      INSERT INTO ${this.table} AS held
        (id, state, owner_id, fence, attempt, taken_over, fingerprint, leased_until, expires_at, label)
      VALUES (${text(1)}, 'running', ${text(2)}, ${nowMicros}, 1, 0, ${text(3)}, ${after(number(4))},
        ${after(number(5))}, ${text(8)})
      ON CONFLICT (id) DO UPDATE SET
        state = CASE WHEN ${givesUp} THEN 'abandoned' ELSE 'running' END,
        owner_id = CASE WHEN ${givesUp} THEN NULL ELSE excluded.owner_id END,
        fence = CASE WHEN ${stays} THEN held.fence ELSE ${larger}(held.fence + 1, excluded.fence) END,
        attempt = CASE WHEN ${expired} THEN 1 WHEN ${stays} THEN held.attempt ELSE held.attempt + 1 END,
        taken_over = CASE WHEN ${stays} THEN held.taken_over WHEN ${lapsed} THEN 1 ELSE 0 END,
        fingerprint = CASE WHEN ${stays} THEN held.fingerprint ELSE excluded.fingerprint END,
        leased_until = CASE WHEN ${givesUp} THEN NULL ELSE excluded.leased_until END,
        expires_at = excluded.expires_at, label = excluded.label, outcome = NULL, codec = NULL, body = NULL
      WHERE ${expired} OR held.state = 'absent' OR ${mine} OR (${lapsed} AND (held.fingerprint = excluded.fingerprint
        OR substr(held.fingerprint, 1, 2) <> substr(excluded.fingerprint, 1, 2)))`;
  }

  select(id = this.speech.text(1)): string {
    return `SELECT ${this.columns} FROM ${this.table} WHERE id = ${id} AND expires_at > ${this.speech.now}`;
  }

  /** Parameters: id, owner, lease, lease and keep. */
  get renew(): string {
    const { number, after } = this.speech;
    return this.#change(`leased_until = ${after(number(3))}, expires_at = ${after(number(4))}`, this.#owned);
  }

  settle(id: string, ownerId: string, ending: RecordEnding): Sql {
    const { now, text, number, after } = this.speech;
    const keepMs = 'keepMs' in ending ? Math.ceil(ending.keepMs) : 0;
    const uncounted = 'countsAttempt' in ending && !ending.countsAttempt ? 1 : 0;
    const left = `attempt - ${uncounted}`;
    const change = (set: string, more: unknown[]): Sql => ({
      sql: this.#change(set, this.#owned),
      parameters: [id, ownerId, ...more],
    });
    const nobodys = 'owner_id = NULL, leased_until = NULL';
    switch (ending.kind) {
      case 'done': {
        const { outcome, codec, body } = ending.result;
        const result = `outcome = ${text(4)}, codec = ${text(5)}, body = ${text(6)}`;
        const set = `state = 'done', leased_until = NULL, expires_at = ${after(number(3))}, ${result}`;
        return change(set, [keepMs, outcome, codec, body]);
      }
      case 'freed': {
        const expiresAt = `CASE WHEN ${left} > 0 THEN ${after(number(3))} ELSE ${now} END`;
        const set = `state = 'absent', fingerprint = '', ${nobodys}, attempt = ${left}, expires_at = ${expiresAt}`;
        return change(set, [keepMs]);
      }
      case 'lapsed':
        return change(`owner_id = NULL, leased_until = ${now}, attempt = ${left}`, []);
      case 'abandoned':
        return change(`state = 'abandoned', ${nobodys}, expires_at = ${after(number(3))}`, [keepMs]);
    }
  }

  /** Parameters: id, owner. Finds the record that this owner completed. */
  get completed(): string {
    const { now, text } = this.speech;
    const mine = `id = ${text(1)} AND owner_id = ${text(2)}`;
    return `SELECT 1 AS completed FROM ${this.table} WHERE ${mine} AND state = 'done' AND expires_at > ${now}`;
  }

  /** Parameters: id, keep, outcome, codec, body. */
  get resolve(): string {
    const { now, text, number, after } = this.speech;
    const result = `outcome = ${text(3)}, codec = ${text(4)}, body = ${text(5)}`;
    return this.#change(
      `state = 'done', owner_id = NULL, leased_until = NULL, expires_at = ${after(number(2))}, ${result}`,
      `id = ${text(1)} AND expires_at > ${now}
        AND (state = 'abandoned' OR (state = 'running' AND leased_until <= ${now}))`,
    );
  }

  /** Parameters: id. The row stays until it is purged, for its fence alone. */
  get forget(): string {
    const { now, text } = this.speech;
    const nothing = `owner_id = NULL, leased_until = NULL, label = '', fingerprint = '', outcome = NULL, codec = NULL, body = NULL`;
    return this.#change(
      `state = 'absent', attempt = 0, ${nothing}, expires_at = ${now}`,
      `id = ${text(1)} AND expires_at > ${now} AND NOT (state = 'running' AND leased_until > ${now})`,
    );
  }

  /** Parameters: the most rows. `locking` keeps two purges from waiting for each other. */
  purge(locking = ''): string {
    const expired = `expires_at <= ${this.speech.after(`(-${PURGE_MARGIN_MS})`)}`;
    const oldest = `SELECT id FROM ${this.table} WHERE ${expired} ORDER BY expires_at LIMIT ${this.speech.number(1)}`;
    return `DELETE FROM ${this.table} WHERE ${expired} AND id IN (${oldest} ${locking}) RETURNING id`;
  }

  /** Parameters: id, owner. */
  get #owned(): string {
    const { now, text } = this.speech;
    return `id = ${text(1)} AND owner_id = ${text(2)} AND state = 'running' AND expires_at > ${now}`;
  }

  #change(set: string, where: string): string {
    return `UPDATE ${this.table} SET ${set} WHERE ${where} RETURNING id`;
  }
}
