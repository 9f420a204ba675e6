import { driverCode } from '../sql/index.js';
import { noticeName, noticeOfRelease } from '../release-notices/index.js';
import { busyFor, grantName, grantOf, rowsOf, type LeaseStatements } from './lease-statements.js';

/** Never now(): that is the time at which a transaction began, which may be long ago. */
const NOW = 'clock_timestamp()';
const NOW_MICROS = `floor(extract(epoch FROM ${NOW}) * 1000000)::bigint`;
/** The queue of notices is full, because a session that listens has been in one transaction for very long. */
const QUEUE_FULL = '54000';
/** Nothing of the statement was done: the role may not notify or not ask for the lock of listeners, or the server knows neither. */
const UNTELLABLE = new RegExp(`^(?:42501|42883|0A000|${QUEUE_FULL})$`);
const COLUMN_TYPES: Readonly<Record<string, string>> = {
  key: 'text',
  owner_id: 'text',
  token: 'bigint',
  expires_at: 'timestamp with time zone', // any other kind of time would depend on the session's time zone
};

/** `owner_id` is null when nobody holds the key; until `expires_at` it is taken all the same. Rows are never deleted. */
export function postgresStatements(table: string): LeaseStatements {
  const acquire = acquireStatement(table);
  const notice = noticeOfRelease(table, '$4::text');
  let tells = true;
  function withoutNotice<T>(error: unknown, release: () => Promise<T>): Promise<T> {
    if (!UNTELLABLE.test(driverCode(error))) throw error;
    tells = driverCode(error) === QUEUE_FULL;
    return release();
  }
  return {
    // Rows change often and no index covers what changes: free space in the page keeps such updates cheap.
    create: [
      `CREATE TABLE IF NOT EXISTS ${table} (key text PRIMARY KEY, owner_id text, token bigint NOT NULL, ` +
        'expires_at timestamptz NOT NULL) WITH (fillfactor = 70)',
    ],
    async check(session) {
      const columns = Object.keys(COLUMN_TYPES);
      const types = columns.map(
        (column) => `pg_typeof((SELECT ${column} FROM ${table} LIMIT 1))::text AS ${column}`,
      );
      const [found = {}] = await rowsOf(
        session,
        `SELECT pg_is_in_recovery() AS standby, ${types.join(', ')}`,
      );
      if (found['standby'] === true) return 'this server is a standby; connect to the primary';
      const wrong = columns.find((column) => found[column] !== COLUMN_TYPES[column]);
      if (wrong) return `column ${wrong} is ${String(found[wrong])}, not ${COLUMN_TYPES[wrong]}`;
      await session.query(`EXPLAIN ${acquire}`, ['', '', 0]);
      return null;
    },
    async tryAcquire(session, { key, ownerId, ttlMs }) {
      const [row] = await rowsOf(session, acquire, [key, ownerId, ttlMs]);
      return row?.['token'] ? grantOf(row['token']) : busyFor(row?.['remaining_ms']);
    },
    async renew(session, claims) {
      const columns = [claims.map((c) => c.key), claims.map((c) => c.ownerId), claims.map((c) => c.ttlMs)];
      const rows = await rowsOf(session, renewStatement(table), columns);
      return new Set(rows.map((row) => grantName(row['owner_id'], row['key'])));
    },
    async release(session, { key, ownerId, keepForMs }) {
      const parameters = [key, ownerId, keepForMs];
      const silently = (): Promise<readonly unknown[]> =>
        rowsOf(session, releaseStatement(table, 'NULL'), parameters);
      const told = (): Promise<readonly unknown[]> =>
        rowsOf(session, releaseStatement(table, notice), [...parameters, noticeName(table, key)]);
      const rows = await (tells
        ? told().catch((error: unknown) => withoutNotice(error, silently))
        : silently());
      return rows.length === 1;
    },
  };
}

/** One row with the token; or one with the remaining time of the holder; or none when the holder is newer than the snapshot. */
function acquireStatement(table: string): string {
  return `
    WITH taken AS (
      INSERT INTO ${table} AS held (key, owner_id, token, expires_at)
      VALUES ($1::text, $2::text, ${NOW_MICROS}, ${after('$3::float8')})
      ON CONFLICT (key) DO UPDATE SET
        owner_id = excluded.owner_id,
        expires_at = ${after('$3::float8')},
        token = CASE
          WHEN held.owner_id = excluded.owner_id AND held.expires_at > ${NOW} THEN held.token
          ELSE greatest(held.token + 1, ${NOW_MICROS})
        END
      WHERE held.expires_at <= ${NOW} OR held.owner_id = excluded.owner_id
      RETURNING token
    )
    SELECT token::text AS token, NULL::float8 AS remaining_ms FROM taken
    UNION ALL
    SELECT NULL, (extract(epoch FROM expires_at - ${NOW}) * 1000)::float8 FROM ${table}
    WHERE key = $1::text AND NOT EXISTS (SELECT FROM taken)`;
}

function renewStatement(table: string): string {
  return `
    WITH renewed AS (
      UPDATE ${table} AS held SET expires_at = ${after('claim.ttl_ms')}
      FROM unnest($1::text[], $2::text[], $3::float8[]) AS claim (key, owner_id, ttl_ms)
      WHERE held.key = claim.key AND held.owner_id = claim.owner_id AND held.expires_at > ${NOW}
      RETURNING held.key, held.owner_id
    )
    SELECT key, owner_id FROM renewed`;
}

/** A freed row gets a time that is past by any clock, so that a clock which is set back does not take the key again. */
function releaseStatement(table: string, notice: string): string {
  return `
    WITH released AS (
      UPDATE ${table} SET
        owner_id = NULL,
        expires_at = CASE WHEN $3::float8 > 0 THEN ${after('$3::float8')} ELSE '-infinity' END
      WHERE key = $1::text AND owner_id = $2::text AND expires_at > ${NOW}
      RETURNING key
    )
    SELECT key, ${notice} FROM released`;
}

function after(durationMs: string): string {
  return `${NOW} + ${durationMs} * interval '1 millisecond'`;
}
