import { createHash } from 'node:crypto';

import type { LockStore } from 'nestjs-distributed-lock';
import {
  createLockTables,
  mysqlNamedLockStore,
  postgresAdvisoryStore,
} from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { mySqlKin, startPostgres, type TestServer } from '../servers/index.js';

/** A database whose own locks a store takes, and what an administrator sees of it. */
export interface SessionLockKind {
  readonly title: string;
  readonly server: 'postgres' | 'mariadb' | 'mysql';
  /** With the lock tables. */
  start(): Promise<TestServer>;
  dataSource(port: number): DataSource;
  store(dataSource: DataSource): LockStore;
  /** For a child process, as `storeAt()` reads it. */
  place(server: TestServer): string;
  /** Locks that any session has: all of them, or on MariaDB and MySQL, which have no list, that of key `k`. */
  readonly countLocks: string;
}

const postgresAdvisory: SessionLockKind = {
  title: 'advisory locks of PostgreSQL',
  server: 'postgres',
  async start() {
    const server = await startPostgres();
    await createLockTables(this.dataSource(server.port));
    return server;
  },
  dataSource: (port) =>
    new DataSource({
      type: 'postgres',
      url: `postgres://postgres@127.0.0.1:${port}/postgres`,
      poolErrorHandler: () => undefined, // servers are killed
    }),
  store: (dataSource) => postgresAdvisoryStore({ dataSource }),
  place: ({ url }) => url.replace('postgres:', 'postgres+advisory:'),
  countLocks: `SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND granted`,
};

const namedLocks = mySqlKin.map(({ kind, name, start }): SessionLockKind => ({
  title: `named locks of ${name}`,
  server: kind,
  async start() {
    const server = await start();
    await createLockTables(this.dataSource(server.port));
    return server;
  },
  dataSource: (port) => new DataSource({ type: kind, url: `mysql://root@127.0.0.1:${port}/app` }),
  store: (dataSource) => mysqlNamedLockStore({ dataSource }),
  place: ({ url }) => url.replace('mysql:', 'mysql+getlock:'),
  countLocks: `SELECT IS_USED_LOCK('${namedLock('k')}') IS NOT NULL AS n`,
}));

export const sessionLockKinds: readonly SessionLockKind[] = [postgresAdvisory, ...namedLocks];

/** The name of the lock of a key in the database `app`. */
export function namedLock(key: string): string {
  return `ll:${createHash('sha256').update(`app\0lock_lease\0${key}`).digest('hex').slice(0, 60)}`;
}
