import { busyFor, grantName, grantOf, rowsOf, type LeaseStatements } from './lease-statements.js';

/** Milliseconds since 1970, the same throughout a statement. `unixepoch('subsec')` says as much, from SQLite 3.42 on. */
const NOW_MS = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`;

/** Columns as on PostgreSQL, with the time as a number. The driver is synchronous: a second statement costs no round trip. */
export function sqliteStatements(table: string): LeaseStatements {
  const acquire = acquireStatement(table);
  return {
    create: [
      `CREATE TABLE IF NOT EXISTS ${table} (key TEXT PRIMARY KEY NOT NULL, owner_id TEXT, token INTEGER NOT NULL, ` +
        'expires_at_ms INTEGER NOT NULL) WITHOUT ROWID',
    ],
    async check(session) {
      // Not EXPLAIN: libsql leaves it open, and then nothing is committed any more. These two name every column.
      await session.query(`SELECT key, owner_id, token, expires_at_ms FROM ${table} LIMIT 0`);
      await session.query(renewStatement(table), ['[]']);
      const sql = `SELECT group_concat(name) AS names FROM pragma_table_info(?) WHERE pk > 0`;
      const [primaryKey] = await rowsOf(session, sql, [table.replaceAll('"', '')]);
      return primaryKey?.['names'] === 'key' ? null : 'its primary key is not the column key';
    },
    async tryAcquire(session, { key, ownerId, ttlMs }) {
      // Looking first keeps those who wait for the key from queueing for the right to write.
      const [holder] = await rowsOf(session, holderStatement(table), [key, ownerId]);
      if (holder) return busyFor(holder['remaining_ms']);
      const [row] = await rowsOf(session, acquire, [key, ownerId, Math.ceil(ttlMs)]);
      return row ? grantOf(row['token']) : busyFor(null);
    },
    async renew(session, claims) {
      const list = claims.map(({ key, ownerId, ttlMs }) => ({ key, ownerId, ttlMs: Math.ceil(ttlMs) }));
      const rows = await rowsOf(session, renewStatement(table), [JSON.stringify(list)]);
      return new Set(rows.map((row) => grantName(row['owner_id'], row['key'])));
    },
    async release(session, { key, ownerId, keepForMs }) {
      const keepMs = Math.ceil(keepForMs);
      const rows = await rowsOf(session, releaseStatement(table), [keepMs, keepMs, key, ownerId]);
      return rows.length === 1;
    },
  };
}

function holderStatement(table: string): string {
  return `
    SELECT expires_at_ms - ${NOW_MS} AS remaining_ms FROM ${table}
    WHERE key = ? AND owner_id IS NOT ? AND expires_at_ms > ${NOW_MS}`;
}

function acquireStatement(table: string): string {
  return `
    INSERT INTO ${table} AS held (key, owner_id, token, expires_at_ms)
    VALUES (?, ?, ${NOW_MS} * 1000, ${NOW_MS} + ?)
    ON CONFLICT (key) DO UPDATE SET
      owner_id = excluded.owner_id,
      expires_at_ms = excluded.expires_at_ms,
      token = CASE
        WHEN held.owner_id = excluded.owner_id AND held.expires_at_ms > ${NOW_MS} THEN held.token
        ELSE max(held.token + 1, excluded.token)
      END
    WHERE held.expires_at_ms <= ${NOW_MS} OR held.owner_id = excluded.owner_id
    RETURNING CAST(token AS TEXT) AS token`;
}

function renewStatement(table: string): string {
  return `
    UPDATE ${table} AS held SET expires_at_ms = ${NOW_MS} + claim.value ->> 'ttlMs'
    FROM json_each(?) AS claim
    WHERE held.key = claim.value ->> 'key' AND held.owner_id = claim.value ->> 'ownerId'
      AND held.expires_at_ms > ${NOW_MS}
    RETURNING key, owner_id`;
}

/** A freed row gets a time that is past by any clock, so that a clock which is set back does not take the key again. */
function releaseStatement(table: string): string {
  return `
    UPDATE ${table} SET
      owner_id = NULL,
      expires_at_ms = CASE WHEN ? > 0 THEN ${NOW_MS} + ? ELSE 0 END
    WHERE key = ? AND owner_id = ? AND expires_at_ms > ${NOW_MS}
    RETURNING key`;
}
