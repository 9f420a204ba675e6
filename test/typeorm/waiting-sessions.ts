import { setImmediate as tick, setTimeout as sleep } from 'node:timers/promises';

import type { DataSource } from 'typeorm';

import type { TestDatabase } from './databases.js';

/**
 * Nobody of ours waits for longer, on a busy machine either: our limits are 5 s at most. By themselves servers let everybody wait
 * for 50 s (MariaDB, MySQL) or for ever (PostgreSQL).
 */
export const OWN_LIMITS_MS = 15_000;

/** Counts the sessions that wait for a lock; null where one transaction can be open: nobody waits in the database. */
const WAITING: Readonly<Record<TestDatabase['dialect'], string | null>> = {
  sqlite: null,
  postgres: 'SELECT count(DISTINCT pid) AS waiting FROM pg_locks WHERE NOT granted',
  mysql: "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'",
};
/** A synchronous driver has done by then whatever it can do. */
export const SYNCHRONOUS_TURNS = 20;
const LOOK_EVERY_MS = 4;

/** Tells how many sessions of the server wait for another one, as `source` sees them; null on SQLite. */
export function waitingSessionsOf(
  dialect: TestDatabase['dialect'],
  source: DataSource,
): (() => Promise<number>) | null {
  const sql = WAITING[dialect];
  if (sql === null) return null;
  return async () => {
    const [row] = await source.query<{ waiting?: unknown; Value?: unknown }[]>(sql);
    return Number(row?.waiting ?? row?.Value);
  };
}

/** Resolves once `count` sessions wait for others; on SQLite, once a writer has been told that it cannot write. */
export async function untilSessionsWait(
  dialect: TestDatabase['dialect'],
  source: DataSource,
  count: number,
): Promise<void> {
  const waiting = waitingSessionsOf(dialect, source);
  if (waiting) while ((await waiting()) < count) await sleep(LOOK_EVERY_MS);
  else for (let turn = 0; turn < SYNCHRONOUS_TURNS; turn += 1) await tick();
}
