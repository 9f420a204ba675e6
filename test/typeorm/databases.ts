import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { DataSource, type DataSourceOptions } from 'typeorm';

import {
  describeOnMySqlKin,
  describeWithServers,
  startMariaDb,
  startMySql,
  startPostgres,
  type MySqlKin,
  type TestServer,
} from '../servers/index.js';

/** A database of the test's own. */
export interface TestDatabase {
  readonly dialect: 'sqlite' | 'postgres' | 'mysql';
  /** A new, initialised DataSource on it: its own pool, as another process would have. */
  connect(options?: Partial<DataSourceOptions>): Promise<DataSource>;
  stop(): Promise<void>;
}

/** What TypeORM calls the servers. */
type ServerType = 'postgres' | MySqlKin['kind'];

type Body = (
  start: () => Promise<TestDatabase>,
  dialect: TestDatabase['dialect'],
  server: ServerType | 'sqlite',
) => void;

/** Runs the same tests on every database that guards work on. */
export function describeOnEachDatabase(title: string, body: Body): void {
  describe(`${title}, on SQLite`, () => body(startSqlite, 'sqlite', 'sqlite'));
  describeWithServers(['postgres'], `${title}, on PostgreSQL`, () =>
    body(() => postgres.start(), 'postgres', 'postgres'),
  );
  describeOnMySqlDatabases(title, body);
}

export function describeOnMySqlDatabases(title: string, body: Body): void {
  describeOnMySqlKin(`${title}, on`, ({ kind }) => body(() => kin[kind].start(), 'mysql', kind));
}

async function startSqlite(): Promise<TestDatabase> {
  const folder = mkdtempSync(join(memoryFolder(), 'guards-'));
  const driver: unknown = createRequire(__filename)('libsql');
  const base = { type: 'better-sqlite3', driver, database: join(folder, 'app.db'), enableWAL: true } as const;
  return {
    dialect: 'sqlite',
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
    private readonly type: ServerType,
    private readonly startServer: () => Promise<TestServer>,
  ) {}

  async start(): Promise<TestDatabase> {
    const { url } = await (this.#server ??= this.startServer());
    const name = `test_${++this.#made}`;
    await this.#run(url, `CREATE DATABASE ${name}`);
    const own = new URL(`/${name}`, url).href;
    return {
      dialect: this.type === 'postgres' ? 'postgres' : 'mysql',
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
const kin = {
  mariadb: new Databases('mariadb', startMariaDb),
  mysql: new Databases('mysql', startMySql),
} as const;
afterAll(() => Promise.all([postgres, kin.mariadb, kin.mysql].map((databases) => databases.stop())));
