import type { ClaimAnswer, RecordClaim } from '../../idempotency/index.js';
import { answerOf, rowsOf, type RecordRow } from './record-rows.js';
import { RecordSql, type SqlSpeech } from './record-sql.js';
import type { RecordStatements, Session } from './record-statements.js';
import { claimParameters, sharedStatements } from './shared-statements.js';

/** Not now(), which stands still in a transaction, nor clock_timestamp(), which moves within a statement. */
const NOW = 'statement_timestamp()';

const speech: SqlSpeech = {
  now: NOW,
  nowMicros: `floor(extract(epoch FROM ${NOW}) * 1000000)::bigint`,
  larger: 'greatest',
  text: (number) => `$${number}::text`,
  number: (number) => `$${number}::bigint`,
  after: (ms) => `(${NOW} + ${ms} * interval '1 millisecond')`,
  msUntil: (time) => `(extract(epoch FROM ${time} - ${NOW}) * 1000)::float8`,
};

/** `table` is quoted, with its schema where there is one. */
export function postgresRecords(table: string, name: string): RecordStatements {
  const sql = new RecordSql(table, speech);
  // The row that was made or changed; or the one that stood in the way, unless it is newer than the snapshot.
  const claim = `
    WITH step AS (${sql.upsert} RETURNING ${sql.columns})
    SELECT * FROM step UNION ALL ${sql.select()} AND NOT EXISTS (SELECT FROM step)`;
  const changed = (statement: string): string => `WITH changed AS (${statement}) SELECT id FROM changed`;
  const claimed = async (session: Session, wanted: RecordClaim): Promise<ClaimAnswer | null> => {
    const [row] = await rowsOf<RecordRow>(session, claim, claimParameters(wanted));
    return answerOf(row, wanted);
  };
  return {
    ...sharedStatements(sql, changed, 'FOR UPDATE SKIP LOCKED'),
    create: [
      `CREATE TABLE IF NOT EXISTS ${table} (
        id text COLLATE "C" PRIMARY KEY, state text NOT NULL, owner_id text, fence bigint NOT NULL, attempt integer NOT NULL,
        taken_over smallint NOT NULL, fingerprint text NOT NULL, leased_until timestamptz, expires_at timestamptz NOT NULL,
        label text NOT NULL, outcome text, codec text, body text) WITH (fillfactor = 80)`,
      `CREATE INDEX IF NOT EXISTS "${name}_expires_at" ON ${table} (expires_at)`,
    ],
    async check(session) {
      const times = ['leased_until', 'expires_at'].map(
        (column) => `pg_typeof((SELECT ${column} FROM ${table} LIMIT 1))::text AS ${column}`,
      );
      const [found = {}] = await rowsOf<Record<string, unknown>>(
        session,
        `SELECT pg_is_in_recovery() AS standby, ${times.join(', ')}`,
      );
      if (found['standby'] === true) return 'this server is a standby; connect to the primary';
      if (found['leased_until'] !== TIME || found['expires_at'] !== TIME) return `its times are not ${TIME}`;
      await session.query(`EXPLAIN ${claim}`, ['', '', '', 0, 0, 0, 0, '']);
      return null;
    },
    claim: claimed,
    async claimWithin(session, wanted) {
      // The claim itself would wait for the other transaction, and keep a connection for as long.
      const [lock] = await rowsOf<{ readonly free: boolean }>(session, TRY_LOCK, [lockNumber(wanted.id)]);
      return lock?.free ? claimed(session, wanted) : { kind: 'running', retryAfterMs: null };
    },
  };
}

const TRY_LOCK = 'SELECT pg_try_advisory_xact_lock($1::bigint) AS free';

/** Ids are digests: two that share these 64 bits only tell each other to come again. */
function lockNumber(id: string): string {
  return Buffer.from(id, 'base64url').readBigInt64BE(0).toString();
}

/** Any other kind of time would depend on the session's time zone. */
const TIME = 'timestamp with time zone';
