import type { ClaimAnswer, RecordClaim } from '../../idempotency/index.js';
import { answerOf, rowsOf, type RecordRow } from './record-rows.js';
import { RecordSql, type SqlSpeech } from './record-sql.js';
import type { RecordStatements, Session } from './record-statements.js';
import { claimParameters, sharedStatements } from './shared-statements.js';

/** Milliseconds since 1970, the same throughout a statement. `unixepoch('subsec')` says as much, from SQLite 3.42 on. */
const NOW_MS = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`;

const speech: SqlSpeech = {
  now: NOW_MS,
  nowMicros: `${NOW_MS} * 1000`,
  larger: 'max',
  text: (number) => `?${number}`,
  number: (number) => `?${number}`,
  after: (ms) => `(${NOW_MS} + ${ms})`,
  msUntil: (time) => `(${time} - ${NOW_MS})`,
};

/** Columns as on PostgreSQL, with times as numbers. The driver is synchronous: a second statement costs no round trip. */
export function sqliteRecords(table: string, name: string): RecordStatements {
  const sql = new RecordSql(table, speech);
  const upsert = `${sql.upsert} RETURNING ${sql.columns}`;
  const claim = async (session: Session, wanted: RecordClaim): Promise<ClaimAnswer | null> => {
    // Looking first keeps replays, and those who wait, from queueing for the right to write.
    const [found] = await rowsOf<RecordRow>(session, sql.select(), [wanted.id]);
    const answer = answerOf(found, wanted);
    if (answer && answer.kind !== 'claimed') return answer;
    const [row] = await rowsOf<RecordRow>(session, upsert, claimParameters(wanted));
    return answerOf(row, wanted);
  };
  return {
    ...sharedStatements(sql, (statement) => statement, ''),
    create: [
      `CREATE TABLE IF NOT EXISTS ${table} (
        id TEXT PRIMARY KEY NOT NULL, state TEXT NOT NULL, owner_id TEXT, fence INTEGER NOT NULL, attempt INTEGER NOT NULL,
        taken_over INTEGER NOT NULL, fingerprint TEXT NOT NULL, leased_until INTEGER, expires_at INTEGER NOT NULL,
        label TEXT NOT NULL, outcome TEXT, codec TEXT, body TEXT) WITHOUT ROWID`,
      `CREATE INDEX IF NOT EXISTS "${name}_expires_at" ON ${table} (expires_at)`,
    ],
    async check(session) {
      await session.query(`SELECT ${sql.columns} FROM ${table} LIMIT 0`);
      const pragma = `SELECT group_concat(name) AS names FROM pragma_table_info(?) WHERE pk > 0`;
      const [primaryKey] = await rowsOf<{ readonly names: unknown }>(session, pragma, [name]);
      return primaryKey?.names === 'id' ? null : 'its primary key is not the column id';
    },
    claim,
    claimWithin: claim, // whoever has begun has the whole file
  };
}
