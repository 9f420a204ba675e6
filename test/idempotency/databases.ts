import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { DataSource, type DataSourceOptions } from 'typeorm';

import { startPostgres, type MySqlKin } from '../servers/index.js';

/** A database of the test's own. */
export interface RecordDatabase {
  readonly options: DataSourceOptions;
  /** For child processes: `postgres://…`, `mysql://…`, or a path to a SQLite file. */
  readonly place: string;
  stop(): Promise<void>;
}

export async function startPostgresRecords(): Promise<RecordDatabase> {
  const server = await startPostgres();
  const { url } = server;
  return { options: { type: 'postgres', url }, place: url, stop: () => server.stop() };
}

export async function startMySqlRecords({ kind, start }: MySqlKin): Promise<RecordDatabase> {
  const server = await start();
  const { url } = server;
  return { options: { type: kind, url }, place: url, stop: () => server.stop() };
}

export function startSqliteRecords(): Promise<RecordDatabase> {
  const folder = mkdtempSync(join(tmpdir(), 'idempotency-'));
  const database = join(folder, 'app.db');
  const stop = async (): Promise<void> => rmSync(folder, { recursive: true });
  return Promise.resolve({ options: sqliteOptions(database), place: database, stop });
}

function sqliteOptions(database: string): DataSourceOptions {
  const driver: unknown = createRequire(__filename)('libsql');
  return { type: 'better-sqlite3', driver, database, enableWAL: true };
}

/** Not initialised: stores open connections of their own. */
export function sourceOf({ options }: RecordDatabase, more: Partial<DataSourceOptions> = {}): DataSource {
  return new DataSource({ ...options, ...more } as DataSourceOptions);
}
