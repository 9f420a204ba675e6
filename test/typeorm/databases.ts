import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { DataSource, type DataSourceOptions } from 'typeorm';

import { describeWithServers, startMariaDb, startPostgres } from '../servers/index.js';

/** A database of the test's own. */
export interface TestDatabase {
  readonly type: 'sqlite' | 'postgres' | 'mariadb';
  /** A new, initialised DataSource on it: its own pool, as another process would have. */
  connect(options?: Partial<DataSourceOptions>): Promise<DataSource>;
  stop(): Promise<void>;
}

/** Runs the same tests on every database that guards work on. */
export function describeOnEachDatabase(
  title: string,
  body: (start: () => Promise<TestDatabase>, type: TestDatabase['type']) => void,
): void {
  describe(`${title}, on SQLite`, () => body(startSqlite, 'sqlite'));
  describeWithServers(['postgres'], `${title}, on PostgreSQL`, () => body(startPostgresDatabase, 'postgres'));
}

/** As {@link describeOnEachDatabase}, and on MariaDB. */
export function describeOnEveryDatabase(
  title: string,
  body: (start: () => Promise<TestDatabase>, type: TestDatabase['type']) => void,
): void {
  describeOnEachDatabase(title, body);
  describeWithServers(['mariadb'], `${title}, on MariaDB`, () => body(startMariaDbDatabase, 'mariadb'));
}

async function startSqlite(): Promise<TestDatabase> {
  const folder = mkdtempSync(join(tmpdir(), 'guards-'));
  const driver: unknown = createRequire(__filename)('libsql');
  const base = { type: 'better-sqlite3', driver, database: join(folder, 'app.db'), enableWAL: true } as const;
  return {
    type: 'sqlite',
    connect: (options) => new DataSource({ ...base, ...options } as DataSourceOptions).initialize(),
    stop: async () => rmSync(folder, { recursive: true }),
  };
}

async function startPostgresDatabase(): Promise<TestDatabase> {
  const server = await startPostgres();
  return {
    type: 'postgres',
    connect: (options) =>
      new DataSource({ type: 'postgres', url: server.url, ...options } as DataSourceOptions).initialize(),
    stop: () => server.stop(),
  };
}

async function startMariaDbDatabase(): Promise<TestDatabase> {
  const server = await startMariaDb();
  return {
    type: 'mariadb',
    connect: (options) =>
      new DataSource({ type: 'mariadb', url: server.url, ...options } as DataSourceOptions).initialize(),
    stop: () => server.stop(),
  };
}
