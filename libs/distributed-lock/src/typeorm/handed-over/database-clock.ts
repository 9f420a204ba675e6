import type { QueryRunner } from 'typeorm';

import type { Dialect } from '../sql/index.js';

/** As in the lease table, so that the clock which makes tokens can be the one that judges them. */
const NOW_MICROS: Readonly<Record<Dialect, string>> = {
  postgres: 'floor(extract(epoch FROM clock_timestamp()) * 1000000)',
  sqlite: "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000",
  mysql: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
};

/** Microseconds since 1970 by the clock of the database: no clock of a client judges a token. */
export async function databaseMicros(session: QueryRunner, dialect: Dialect): Promise<number> {
  const [row] = (await session.query(`SELECT ${NOW_MICROS[dialect]} AS micros`)) as { micros: unknown }[];
  return Number(row?.micros);
}
