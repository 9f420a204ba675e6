import {
  sameRequest,
  type ClaimAnswer,
  type RecordClaim,
  type RecordEnding,
} from '../../idempotency/index.js';
import { driverCode } from '../sql/index.js';
import { hardlyWaiting } from './mysql-waiting.js';
import { answerOf, recordOf, rowsOf, type RecordRow } from './record-rows.js';
import type { RecordStatements, Session } from './record-statements.js';

/** Microseconds since 1970, of the moment at which the statement began. No time zone and no daylight saving plays a part. */
const NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
const EXPIRED = `expires_at_us <= ${NOW}`;
const LIVE = `expires_at_us > ${NOW}`;
/** How long an expired row stays, so that a row made anew gets a higher fence. */
const PURGE_MARGIN_US = 50_000;

/** Texts come as bytes, whatever character set the connection has. */
const COLUMNS =
  'state, CAST(owner_id AS BINARY) AS owner_id, CAST(fence AS CHAR) AS fence, attempt, taken_over, ' +
  'CAST(fingerprint AS BINARY) AS fingerprint, CAST(label AS BINARY) AS label, ' +
  `(leased_until_us - ${NOW}) / 1000 AS lease_ms, (expires_at_us - ${NOW}) / 1000 AS expires_in_ms, ` +
  'outcome, codec, CAST(body AS BINARY) AS body';

type Changes = readonly [set: string, parameters: readonly unknown[]];

/**
 * MySQL and MariaDB. Columns as on PostgreSQL, with times as numbers, and texts that are compared by their bytes: other
 * collations find different texts equal.
 *
 * A claim is an insert; where a row is in the way, a look; and where that row may be taken, an update that takes it as it was
 * found, and another look. These databases answer no update with the row that it has changed.
 */
export function mysqlRecords(_table: string, name: string): RecordStatements {
  const table = `\`${name}\``;
  const withoutWaiting = hardlyWaiting();
  const change = async (
    session: Session,
    [set, values]: Changes,
    where: string,
    more: unknown[],
    prefix = '',
  ): Promise<boolean> => {
    const sql = `${prefix}UPDATE ${table} SET ${set} WHERE ${where}`;
    return affectedRows(await session.query(sql, [...values, ...more])) > 0;
  };
  const find = async (session: Session, id: string): Promise<RecordRow | undefined> => {
    const sql = `SELECT ${COLUMNS} FROM ${table} WHERE id = ? AND ${LIVE}`;
    const [found] = await rowsOf<Record<string, unknown>>(session, sql, [Buffer.from(id)]);
    return found && asRow(found);
  };
  /** The fence of the new record; null when there is one already. */
  const insert = async (session: Session, claim: RecordClaim, prefix: string): Promise<number | null> => {
    const { id, ownerId, fingerprint, label } = claim;
    const sql =
      `${prefix}INSERT INTO ${table} (id, state, owner_id, fence, attempt, taken_over, fingerprint, label, leased_until_us, ` +
      `expires_at_us) VALUES (?, 'running', ?, LAST_INSERT_ID(${NOW}), 1, 0, ?, ?, ${NOW} + ?, ${NOW} + ?)`;
    const texts = [id, ownerId, fingerprint, label].map((text) => Buffer.from(text));
    try {
      return Number(
        ((await session.query(sql, [...texts, ...times(claim)])) as { insertId?: unknown }).insertId,
      );
    } catch (error) {
      if (driverCode(error) !== 'ER_DUP_ENTRY') throw error;
      return null;
    }
  };
  const claim = async (session: Session, wanted: RecordClaim, prefix = ''): Promise<ClaimAnswer | null> => {
    const fence = await insert(session, wanted, prefix);
    if (fence !== null) return { kind: 'claimed', fence, attempt: 1, takenOver: false };
    const found = await find(session, wanted.id);
    const step = stepFor(found, wanted);
    if (!step) return answerOf(found, wanted);
    const [where, more] = [`id = ? AND ${step.where}`, [Buffer.from(wanted.id), ...step.more]];
    if (!(await change(session, step.changes, where, more, prefix))) return null;
    return answerOf(await find(session, wanted.id), wanted);
  };
  return {
    create: [createStatement(table)],
    async check(session) {
      const [found] = await rowsOf<Record<string, unknown>>(session, CHECK, [name]);
      await session.query(`SELECT ${COLUMNS} FROM ${table} LIMIT 0`);
      if (Number(found?.['read_only']) === 1) return 'this server is read-only; connect to the primary';
      if (found?.['engine'] !== 'InnoDB') return `its engine is ${String(found?.['engine'])}, not InnoDB`;
      return found['primary_key'] === 'id' ? null : 'its primary key is not the column id';
    },
    claim: (session, wanted) => claim(session, wanted),
    async claimWithin(session, wanted) {
      try {
        return await withoutWaiting(session, (prefix) => claim(session, wanted, prefix));
      } catch (error) {
        if (driverCode(error) !== 'ER_LOCK_WAIT_TIMEOUT') throw error;
        return { kind: 'running', retryAfterMs: null };
      }
    },
    renew(session, { id, ownerId, leaseMs, keepMs }) {
      const set = `leased_until_us = ${NOW} + ?, expires_at_us = ${NOW} + ?`;
      return change(session, [set, times({ leaseMs, keepMs })], OWNED, [
        Buffer.from(id),
        Buffer.from(ownerId),
      ]);
    },
    settle: (session, id, ownerId, ending) =>
      change(session, changesAt(ending), OWNED, [Buffer.from(id), Buffer.from(ownerId)]),
    async wasCompleted(session, id, ownerId) {
      const mine = [Buffer.from(id), Buffer.from(ownerId)];
      const sql = `SELECT 1 AS completed FROM ${table} WHERE id = ? AND owner_id = ? AND state = 'done' AND ${LIVE}`;
      return (await rowsOf(session, sql, mine)).length === 1;
    },
    resolve(session, id, result, keepMs) {
      const [set, values] = changesAt({ kind: 'done', result, keepMs });
      const open = `id = ? AND ${LIVE} AND (state = 'abandoned' OR (state = 'running' AND leased_until_us <= ${NOW}))`;
      return change(session, [`owner_id = NULL, ${set}`, values], open, [Buffer.from(id)]);
    },
    async forget(session, id) {
      const set =
        "attempt = 0, owner_id = NULL, label = '', fingerprint = '', outcome = NULL, codec = NULL, body = NULL, " +
        `state = 'absent', leased_until_us = NULL, expires_at_us = ${NOW}`;
      const idle = `id = ? AND ${LIVE} AND NOT (state = 'running' AND leased_until_us > ${NOW})`;
      if (await change(session, [set, []], idle, [Buffer.from(id)])) return 'forgotten';
      return (await find(session, id)) ? 'running' : 'absent';
    },
    read: async (session, id) => recordOf(await find(session, id)),
    async purge(session, limit) {
      const sql = `DELETE FROM ${table} WHERE expires_at_us <= ${NOW} - ${PURGE_MARGIN_US} ORDER BY expires_at_us LIMIT ?`;
      return affectedRows(await session.query(sql, [limit]));
    },
  };
}

const OWNED = `id = ? AND owner_id = ? AND state = 'running' AND ${LIVE}`;

interface ClaimStep {
  readonly changes: Changes;
  readonly where: string;
  readonly more: readonly unknown[];
}

/** What is to become of the row that was found; undefined when it may not be claimed. Its condition is looked at again. */
function stepFor(found: RecordRow | undefined, claim: RecordClaim): ClaimStep | undefined {
  const { ownerId, fingerprint, label, takeOver, maxAttempts } = claim;
  const owner = Buffer.from(ownerId);
  const begin = (attempt: string, takenOver: number): Changes => [
    `attempt = ${attempt}, taken_over = ${takenOver}, fence = GREATEST(fence + 1, ${NOW}), state = 'running', ` +
      `owner_id = ?, fingerprint = ?, label = ?, leased_until_us = ${NOW} + ?, expires_at_us = ${NOW} + ?, ` +
      'outcome = NULL, codec = NULL, body = NULL',
    [owner, Buffer.from(fingerprint), Buffer.from(label), ...times(claim)],
  ];
  if (!found) return { changes: begin('1', 0), where: EXPIRED, more: [] };
  if (found.state === 'absent')
    return { changes: begin('attempt + 1', 0), where: `${LIVE} AND state = 'absent'`, more: [] };
  if (found.state !== 'running') return undefined;
  if (found.owner_id === ownerId) {
    const anew = `leased_until_us = ${NOW} + ?, expires_at_us = ${NOW} + ?`;
    return {
      changes: [anew, times(claim)],
      where: `${LIVE} AND state = 'running' AND owner_id = ?`,
      more: [owner],
    };
  }
  if ((found.lease_ms ?? 0) > 0 || !sameRequest(found.fingerprint, fingerprint)) return undefined;
  const asFound = `${LIVE} AND state = 'running' AND leased_until_us <= ${NOW} AND fence = ? AND attempt = ?`;
  const more = [found.fence, found.attempt]; // and so the very request that was found
  if (takeOver && found.attempt < maxAttempts)
    return { changes: begin('attempt + 1', 1), where: asFound, more };
  const abandon = `state = 'abandoned', owner_id = NULL, leased_until_us = NULL, expires_at_us = ${NOW} + ?`;
  return { changes: [abandon, times(claim).slice(1)], where: asFound, more };
}

function changesAt(ending: RecordEnding): Changes {
  const keepUs = 'keepMs' in ending ? micros(ending.keepMs) : 0;
  const uncounted = 'countsAttempt' in ending && !ending.countsAttempt ? 1 : 0;
  const nobodys = 'owner_id = NULL, leased_until_us = NULL';
  switch (ending.kind) {
    case 'done': {
      const { outcome, codec, body } = ending.result;
      const set = `state = 'done', leased_until_us = NULL, expires_at_us = ${NOW} + ?, outcome = ?, codec = ?, body = ?`;
      return [set, [keepUs, outcome, codec, Buffer.from(body)]];
    }
    case 'freed': {
      const expiresAt = `IF(attempt > 0, ${NOW} + ?, ${NOW})`; // of the attempt that was just set
      const set = `attempt = attempt - ?, state = 'absent', fingerprint = '', ${nobodys}, expires_at_us = ${expiresAt}`;
      return [set, [uncounted, keepUs]];
    }
    case 'lapsed':
      return [`owner_id = NULL, leased_until_us = ${NOW}, attempt = attempt - ?`, [uncounted]];
    case 'abandoned':
      return [`state = 'abandoned', ${nobodys}, expires_at_us = ${NOW} + ?`, [keepUs]];
  }
}

/** Collations that tell any two texts apart. */
const ASCII = 'CHARACTER SET ascii COLLATE ascii_bin';
const UTF8 = 'CHARACTER SET utf8mb4 COLLATE utf8mb4_bin';

function createStatement(table: string): string {
  return (
    `CREATE TABLE IF NOT EXISTS ${table} (id varchar(64) ${ASCII} NOT NULL PRIMARY KEY, state varchar(9) ${ASCII} NOT NULL, ` +
    `owner_id varchar(64) ${ASCII}, fence bigint NOT NULL, attempt int NOT NULL, taken_over tinyint NOT NULL, ` +
    `fingerprint varbinary(255) NOT NULL, label varchar(1024) ${UTF8} NOT NULL, leased_until_us bigint, ` +
    `expires_at_us bigint NOT NULL, outcome varchar(7) ${ASCII}, codec varchar(64) ${ASCII}, body longtext ${UTF8}, ` +
    'KEY (expires_at_us)) ENGINE = InnoDB'
  );
}

const CHECK =
  'SELECT @@global.read_only AS read_only, t.ENGINE AS engine, GROUP_CONCAT(k.COLUMN_NAME) AS primary_key ' +
  'FROM information_schema.TABLES t LEFT JOIN information_schema.KEY_COLUMN_USAGE k ' +
  'ON k.TABLE_SCHEMA = t.TABLE_SCHEMA AND k.TABLE_NAME = t.TABLE_NAME ' +
  "AND k.CONSTRAINT_NAME = 'PRIMARY' WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ? GROUP BY t.ENGINE";

function times({ leaseMs, keepMs }: Pick<RecordClaim, 'leaseMs' | 'keepMs'>): readonly number[] {
  return [micros(leaseMs), micros(leaseMs + keepMs)];
}

function micros(durationMs: number): number {
  return Math.ceil(durationMs * 1_000);
}

/** Decimals come as text, and numbers as they are configured. */
function asRow(found: Readonly<Record<string, unknown>>): RecordRow {
  const text = (column: string): string | null => {
    const value = found[column];
    return Buffer.isBuffer(value) ? value.toString() : ((value ?? null) as string | null);
  };
  const number = (column: string): number | null => (found[column] === null ? null : Number(found[column]));
  return {
    state: text('state') as RecordRow['state'],
    owner_id: text('owner_id'),
    fence: text('fence') ?? '',
    attempt: Number(found['attempt']),
    taken_over: Number(found['taken_over']),
    fingerprint: text('fingerprint') ?? '',
    label: text('label') ?? '',
    lease_ms: number('lease_ms'),
    expires_in_ms: Number(found['expires_in_ms']),
    outcome: text('outcome') as RecordRow['outcome'],
    codec: text('codec'),
    body: text('body'),
  };
}

function affectedRows(answer: unknown): number {
  return Number((answer as { readonly affectedRows?: unknown }).affectedRows);
}
