import type { Claim } from '../../core/index.js';
import { busyFor, grantName, grantOf, rowsOf, type LeaseStatements } from './lease-statements.js';

/** Microseconds since 1970, of the moment at which the statement began. No time zone and no daylight saving plays a part. */
const NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
const MICROS_PER_MS = 1_000;

/** Columns as on PostgreSQL, with the time as a number. Keys and owner ids are bytes: collations find different texts equal. */
export function mysqlStatements(name: string): LeaseStatements {
  const table = `\`${name}\``;
  return {
    create: [
      `CREATE TABLE IF NOT EXISTS ${table} (\`key\` varbinary(512) NOT NULL PRIMARY KEY, owner_id varbinary(64), ` +
        'token bigint NOT NULL, expires_at_us bigint NOT NULL) ENGINE = InnoDB',
    ],
    async check(session) {
      const [found] = await rowsOf(session, CHECK, [name]);
      await session.query(`SELECT \`key\`, owner_id, token, expires_at_us FROM ${table} LIMIT 0`);
      if (Number(found?.['read_only']) === 1) return 'this server is read-only; connect to the primary';
      if (found?.['engine'] !== 'InnoDB') return `its engine is ${String(found?.['engine'])}, not InnoDB`;
      return found['primary_key'] === 'key' ? null : 'its primary key is not the column key';
    },
    async tryAcquire(session, claim) {
      const { key, ownerId } = claim;
      await session.query(acquireStatement(table), parametersOf(claim));
      const sql = `SELECT owner_id, CAST(token AS CHAR) AS token, expires_at_us - ${NOW} AS remaining_us FROM ${table} WHERE \`key\` = ?`;
      const [row] = await rowsOf(session, sql, [Buffer.from(key)]);
      if (String(row?.['owner_id']) === ownerId) return grantOf(row?.['token']);
      return busyFor(Number(row?.['remaining_us']) / MICROS_PER_MS);
    },
    async renew(session, claims) {
      await session.query(renewStatement(table, claims.length), claims.flatMap(parametersOf));
      const owned = claims.map(() => '(`key` = ? AND owner_id = ?)').join(' OR ');
      const sql = `SELECT \`key\`, owner_id FROM ${table} WHERE expires_at_us > ${NOW} AND (${owned})`;
      const rows = await rowsOf(session, sql, claims.flatMap(namesOf));
      return new Set(rows.map((row) => grantName(row['owner_id'], row['key'])));
    },
    async release(session, request) {
      const keepUs = microsOf(request.keepForMs);
      // A freed row gets a time that is past by any clock, so that a clock which is set back does not take the key again.
      const sql =
        `UPDATE ${table} SET owner_id = NULL, expires_at_us = ${keepUs > 0 ? `${NOW} + ${keepUs}` : '0'} ` +
        `WHERE \`key\` = ? AND owner_id = ? AND expires_at_us > ${NOW}`;
      return affectedRows(await session.query(sql, namesOf(request))) === 1;
    },
  };
}

const CHECK =
  'SELECT @@global.read_only AS read_only, t.ENGINE AS engine, GROUP_CONCAT(k.COLUMN_NAME) AS primary_key ' +
  'FROM information_schema.TABLES t LEFT JOIN information_schema.KEY_COLUMN_USAGE k ' +
  'ON k.TABLE_SCHEMA = t.TABLE_SCHEMA AND k.TABLE_NAME = t.TABLE_NAME ' +
  "AND k.CONSTRAINT_NAME = 'PRIMARY' WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ? GROUP BY t.ENGINE";

/**
 * A duplicate is assigned from left to right: the token and the owner look at the time that was there, and the time at the
 * owner that is there now.
 */
function acquireStatement(table: string): string {
  return `
    INSERT INTO ${table} (\`key\`, owner_id, token, expires_at_us) VALUES (?, ?, ${NOW}, ${NOW} + ?)
    ON DUPLICATE KEY UPDATE
      token = IF(expires_at_us <= ${NOW}, GREATEST(token + 1, ${NOW}), token),
      owner_id = IF(expires_at_us <= ${NOW}, VALUES(owner_id), owner_id),
      expires_at_us = IF(owner_id = VALUES(owner_id), VALUES(expires_at_us), expires_at_us)`;
}

function renewStatement(table: string, count: number): string {
  const claims = ['SELECT ? AS claimed_key, ? AS claimant, ? AS ttl_us'];
  for (let i = 1; i < count; i += 1) claims.push('SELECT ?, ?, ?');
  return `
    UPDATE ${table} AS held JOIN (${claims.join(' UNION ALL ')}) AS claim
      ON held.\`key\` = claim.claimed_key AND held.owner_id = claim.claimant
    SET held.expires_at_us = ${NOW} + claim.ttl_us WHERE held.expires_at_us > ${NOW}`;
}

function parametersOf(claim: Claim): unknown[] {
  return [...namesOf(claim), microsOf(claim.ttlMs)];
}

/** As bytes, which the driver writes in hexadecimal: no character set and no escaping comes between. */
function namesOf({ key, ownerId }: Pick<Claim, 'key' | 'ownerId'>): Buffer[] {
  return [Buffer.from(key), Buffer.from(ownerId)];
}

function microsOf(durationMs: number): number {
  return Math.ceil(durationMs * MICROS_PER_MS);
}

function affectedRows(answer: unknown): number {
  return Number((answer as { readonly affectedRows?: unknown }).affectedRows);
}
