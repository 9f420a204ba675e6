import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { DataSource, type DataSourceOptions } from 'typeorm';

import { describeWithServers, startMariaDb, startPostgres, type TestServer } from '../servers/index.js';

/** A database of the test's own. */
export interface TestDatabase {
  readonly type: 'sqlite' | 'postgres' | 'mariadb';
  /** A new, initialised DataSource on it: its own pool, as another process would have. */
  connect(options?: Partial<DataSourceOptions>): Promise<DataSource>;
  stop(): Promise<void>;
}

type Body = (start: () => Promise<TestDatabase>, type: TestDatabase['type']) => void;

/** Runs the same tests on every database that guards work on. */
export function describeOnEachDatabase(title: string, body: Body): void {
  describe(`${title}, on SQLite`, () => body(startSqlite, 'sqlite'));
  describeWithServers(['postgres'], `${title}, on PostgreSQL`, () =>
    body(() => postgres.start(), 'postgres'),
  );
  describeOnMariaDb(title, body);
}

export function describeOnMariaDb(title: string, body: Body): void {
  describeWithServers(['mariadb'], `${title}, on MariaDB`, () => body(() => mariaDb.start(), 'mariadb'));
}

async function startSqlite(): Promise<TestDatabase> {
  const folder = mkdtempSync(join(memoryFolder(), 'guards-'));
  const driver: unknown = createRequire(__filename)('libsql');
  const base = { type: 'better-sqlite3', driver, database: join(folder, 'app.db'), enableWAL: true } as const;
  return {
    type: 'sqlite',
    connect: (options) => new DataSource({ ...base, ...options } as DataSourceOptions).initialize(),
    stop: async () => rmSync(folder, { recursive: true }),
  };
}

/** In memory, where there is such a folder: a flush to disk takes nine tenths of the time of a commit. */
function memoryFolder(): string {
  const folder = '/dev/shm';
  try {
    accessSync(folder, constants.W_OK);
    return folder;
  } catch {
    return tmpdir(); // slower, and no less right
  }
}

/** One server for all tests of a file; each gets a database of its own in it, which takes a tenth of the time. */
class Databases {
  #server: Promise<TestServer> | undefined;
  #made = 0;

  constructor(
    private readonly type: 'postgres' | 'mariadb',
    private readonly startServer: () => Promise<TestServer>,
  ) {}

  async start(): Promise<TestDatabase> {
    const { url } = await (this.#server ??= this.startServer());
    const name = `test_${++this.#made}`;
    await this.#run(url, `CREATE DATABASE ${name}`);
    const own = new URL(`/${name}`, url).href;
    return {
      type: this.type,
      connect: (options) =>
        new DataSource({ type: this.type, url: own, ...options } as DataSourceOptions).initialize(),
      stop: () => this.#run(url, `DROP DATABASE ${name}${this.type === 'postgres' ? ' WITH (FORCE)' : ''}`),
    };
  }

  async stop(): Promise<void> {
    await (await this.#server)?.stop();
  }

  async #run(url: string, statement: string): Promise<void> {
    const admin = await new DataSource({ type: this.type, url }).initialize();
    await admin.query(statement);
    await admin.destroy();
  }
}

const postgres = new Databases('postgres', startPostgres);
const mariaDb = new Databases('mariadb', startMariaDb);
afterAll(() => Promise.all([postgres.stop(), mariaDb.stop()]));
