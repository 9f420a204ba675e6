import { setImmediate as tick, setTimeout as sleep } from 'node:timers/promises';

import type { DataSource } from 'typeorm';

import type { TestDatabase } from './databases.js';

/** Counts the sessions that wait for a lock; null where only one transaction can be open, and nobody waits in the database. */
const WAITING: Readonly<Record<TestDatabase['type'], string | null>> = {
  sqlite: null,
  postgres: 'SELECT count(DISTINCT pid) AS waiting FROM pg_locks WHERE NOT granted',
  mariadb:
    'SELECT VARIABLE_VALUE AS waiting FROM information_schema.GLOBAL_STATUS ' +
    "WHERE VARIABLE_NAME = 'Innodb_row_lock_current_waits'",
};
/** A synchronous driver has done by then whatever it can do. */
export const SYNCHRONOUS_TURNS = 20;
const LOOK_EVERY_MS = 4;

/** Tells how many sessions of the server wait for another one, as `source` sees them; null on SQLite. */
export function waitingSessionsOf(
  type: TestDatabase['type'],
  source: DataSource,
): (() => Promise<number>) | null {
  const sql = WAITING[type];
  if (sql === null) return null;
  return async () => {
    const [row] = await source.query<{ waiting: unknown }[]>(sql);
    return Number(row?.waiting);
  };
}

/** Resolves once `count` sessions wait for others; on SQLite, once whoever wants to write has been told that it cannot. */
export async function untilSessionsWait(
  type: TestDatabase['type'],
  source: DataSource,
  count: number,
): Promise<void> {
  const waiting = waitingSessionsOf(type, source);
  if (waiting) while ((await waiting()) < count) await sleep(LOOK_EVERY_MS);
  else for (let turn = 0; turn < SYNCHRONOUS_TURNS; turn += 1) await tick();
}
