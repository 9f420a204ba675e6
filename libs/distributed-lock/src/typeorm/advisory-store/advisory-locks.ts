import { createHash } from 'node:crypto';

import type { DataSource } from 'typeorm';

import { type Claim, type KeyWatch, LockConfigInvalidError } from '../../core/index.js';
import { rowsOf, postgresTable } from '../lease-table/index.js';
import type { LockSession, Look, SessionLocks } from '../session-lock/index.js';
import { FreeKeys } from '../release-notices/index.js';

const CHANNEL = 'nestjs_distributed_lock';
/** By this, and by its role, a session that may be ended is told from others that ask for the same number. */
const SESSION_NAME = 'nestjs-distributed-lock session';
/** A session that has said nothing for so long, although its lease is over, belongs to a process that is stopped. */
const SILENT_MS = 500;
const NEVER_LEASED_MS = -Number.MAX_SAFE_INTEGER;

/** Advisory locks of one database, each under 64 bits of a digest. */
export class AdvisoryLocks implements SessionLocks {
  readonly #table: string;
  readonly #free = new FreeKeys();

  constructor(dataSource: DataSource, table: string) {
    this.#table = postgresTable(dataSource, table);
  }

  nameOf(key: string): string {
    const text = `nestjs-distributed-lock lease:${this.#table}:${key}`;
    return createHash('sha256').update(text).digest().readBigInt64BE().toString();
  }

  async prepare(session: LockSession): Promise<void> {
    const [row] = await rowsOf(session, 'SELECT pg_backend_pid() AS pid');
    requireOwnBackend(session, Number(row?.['pid'])); // before anything is set, which a pooler would keep for others
    await session.query(PREPARE, [SESSION_NAME]);
    const client = session.connection;
    client.on('notification', (told: { readonly channel: string; readonly payload?: string }) => {
      if (told.channel === CHANNEL) this.#free.ring(told.payload ?? '');
    });
    await session.query(`LISTEN ${CHANNEL}`);
    this.#free.hear(() => !session.ended);
  }

  async look(session: LockSession, name: string, { key, ownerId }: Claim): Promise<Look> {
    const [row = {}] = await rowsOf(session, lookStatement(this.#table), [key, ownerId, name]);
    return {
      got: row['got'] as boolean | null,
      ownerId: row['owner_id'] as string | null,
      remainingMs: (row['remaining_ms'] as number | null) ?? NEVER_LEASED_MS,
    };
  }

  async keep(session: LockSession, names: readonly string[]): Promise<ReadonlySet<string>> {
    if (names.length === 0) return new Set();
    const rows = await rowsOf(session, KEEP, [[...new Set(names)], SESSION_NAME]);
    return new Set(rows.filter((row) => row['got'] === true).map((row) => String(row['name'])));
  }

  async unlock(session: LockSession, name: string): Promise<boolean> {
    const sql = `SELECT pg_advisory_unlock($1::bigint) AS freed, pg_notify('${CHANNEL}', $2::text)`;
    const [row] = await rowsOf(session, sql, [name, name]);
    return row?.['freed'] === true;
  }

  async tellFree(session: LockSession, name: string): Promise<void> {
    await session.query(`SELECT pg_notify('${CHANNEL}', $1::text)`, [name]);
  }

  async evictSilent(session: LockSession, name: string): Promise<boolean> {
    const rows = await rowsOf(session, EVICT, [name, SESSION_NAME, SILENT_MS]);
    return rows.length > 0;
  }

  watch(name: string, wake: () => void): KeyWatch {
    return this.#free.watch(name, wake);
  }

  close(): Promise<void> {
    return Promise.resolve(); // what it hears, it hears on the session
  }
}

/** A limit on idle sessions would end this one. */
const PREPARE = `
  SELECT set_config('application_name', $1::text, false),
    (SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout')`;

/** Not asked for while the row belongs to somebody else: a try that succeeds would be in the way of its holder. */
function lookStatement(table: string): string {
  return `
    SELECT held.owner_id, held.remaining_ms,
      CASE WHEN held.remaining_ms > 0 AND held.owner_id IS DISTINCT FROM $2::text THEN NULL
        ELSE pg_try_advisory_lock($3::bigint) END AS got
    FROM (SELECT 1) AS one LEFT JOIN (
      SELECT owner_id, CASE WHEN isfinite(expires_at)
        THEN (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::float8 END AS remaining_ms
      FROM ${table} WHERE key = $1::text OFFSET 0
    ) AS held ON true`;
}

const KEEP = `
  WITH held AS MATERIALIZED (
    SELECT (lock.classid::bigint << 32) | lock.objid::bigint AS name
    FROM pg_locks AS lock JOIN pg_stat_activity AS activity USING (pid)
    WHERE lock.locktype = 'advisory' AND lock.objsubid = 1 AND lock.granted AND lock.database = activity.datid
      AND activity.datname = current_database() AND activity.application_name = $2::text
  )
  SELECT name::text, CASE WHEN name IN (SELECT name FROM held) THEN true ELSE pg_try_advisory_lock(name) END AS got
  FROM unnest($1::bigint[]) AS asked (name)`;

/** Only sessions of this library, and only those that this role may end: of the same role. */
const EVICT = `
  SELECT pg_terminate_backend(activity.pid) FROM pg_locks AS held JOIN pg_stat_activity AS activity USING (pid)
  WHERE held.locktype = 'advisory' AND held.objsubid = 1 AND held.granted AND activity.datname = current_database()
    AND held.database = activity.datid AND (held.classid::bigint << 32) | held.objid::bigint = $1::bigint
    AND activity.usename = current_user AND activity.application_name = $2::text AND activity.state = 'idle'
    AND activity.state_change < clock_timestamp() - $3::float8 * interval '1 millisecond'`;

/**
 * The server tells its process number when a connection begins; a pooler tells one of its own, and may give each statement
 * to another session. Asking twice would be no test: a quiet pooler answers from the same session.
 */
function requireOwnBackend({ connection }: LockSession, pid: number): void {
  const { processID } = connection as { readonly processID?: unknown };
  if (processID === pid) return;
  throw new LockConfigInvalidError(
    'The connection to PostgreSQL goes through a pooler (PgBouncer or the like), which may give every statement to another ' +
      'session, and with it the locks. Nothing was locked. Give the store a DataSource that connects to the server itself, ' +
      'or use typeormStore(), or withAdvisoryLock(), which both work behind poolers.',
  );
}
