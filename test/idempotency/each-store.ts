import { memoryIdempotencyStore, type IdempotencyStore } from 'nestjs-distributed-lock';
import { redisIdempotencyStore } from 'nestjs-distributed-lock/redis';
import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';

import { describeWithServers, mySqlKin, startRedis, type MySqlKin } from '../servers/index.js';
import {
  sourceOf,
  startMySqlRecords,
  startPostgresRecords,
  startSqliteRecords,
  type RecordDatabase,
} from './databases.js';

/** A place that keeps records, for as long as a test runs. */
export interface StorePlace {
  /** A store on a connection of its own, as another process would have. */
  connect(): IdempotencyStore;
  /** For child processes: `redis://…`, `postgres://…`, `mysql://…`, or a path to a SQLite file; null for memory. */
  readonly place: string | null;
  stop(): Promise<void>;
}

export type StoreKind = keyof typeof STORES;
type Body = (start: () => Promise<StorePlace>) => void;

/** Runs the same tests on stores of these kinds, on real servers. */
export function describeOn(kinds: readonly StoreKind[], title: string, body: Body): void {
  for (const kind of kinds) {
    const { name, servers, start } = STORES[kind];
    describeWithServers(servers, `${title}, ${name}`, () => body(start));
  }
}

/** Runs the same tests on every store. */
export function describeOnEachStore(title: string, body: Body): void {
  describeOn(['memory', 'redis', 'postgres', 'mariadb', 'mysql', 'sqlite'], title, body);
}

/** Runs the same tests on every store that several processes can share. */
export function describeOnEachSharedStore(title: string, body: Body): void {
  describeOn(['redis', 'postgres', 'mariadb', 'mysql', 'sqlite'], title, body);
}

const STORES = {
  memory: { name: 'in memory', servers: [], start: inMemory },
  redis: { name: 'on Redis', servers: ['redis'], start: onRedis },
  postgres: { name: 'on PostgreSQL', servers: ['postgres'], start: () => inDatabase(startPostgresRecords()) },
  mariadb: onMySqlKin(mySqlKin[0]),
  mysql: onMySqlKin(mySqlKin[1]),
  sqlite: { name: 'on SQLite', servers: [], start: () => inDatabase(startSqliteRecords()) },
} as const;

function onMySqlKin(kin: MySqlKin) {
  const start = (): Promise<StorePlace> => inDatabase(startMySqlRecords(kin));
  return { name: `on ${kin.name}`, servers: [kin.kind], start } as const;
}

function inMemory(): Promise<StorePlace> {
  const store = memoryIdempotencyStore({ maxRecords: 100_000 });
  return Promise.resolve({ connect: () => store, place: null, stop: () => Promise.resolve() });
}

async function onRedis(): Promise<StorePlace> {
  const server = await startRedis();
  const { url } = server;
  return { connect: () => redisIdempotencyStore({ url }), place: url, stop: () => server.stop() };
}

async function inDatabase(starting: Promise<RecordDatabase>): Promise<StorePlace> {
  const database = await starting;
  await createIdempotencyTable(sourceOf(database));
  return {
    connect: () => typeormIdempotencyStore({ dataSource: sourceOf(database) }),
    place: database.place,
    stop: () => database.stop(),
  };
}
