import { memoryIdempotencyStore, type IdempotencyStore } from 'nestjs-distributed-lock';
import { redisIdempotencyStore } from 'nestjs-distributed-lock/redis';
import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';

import { describeWithServers, startRedis } from '../servers/index.js';
import { sourceOf, startPostgresRecords, startSqliteRecords, type RecordDatabase } from './databases.js';

/** A place that keeps records, for as long as a test runs. */
export interface StorePlace {
  /** A store on a connection of its own, as another process would have. */
  connect(): IdempotencyStore;
  /** For child processes: `redis://…`, `postgres://…`, or a path to a SQLite file; null for memory. */
  readonly place: string | null;
  stop(): Promise<void>;
}

/** Runs the same tests on every store, on real servers. */
export function describeOnEachStore(title: string, body: (start: () => Promise<StorePlace>) => void): void {
  describe(`${title}, in memory`, () => body(inMemory));
  describeOnEachSharedStore(title, body);
}

/** Runs the same tests on every store that several processes can share. */
export function describeOnEachSharedStore(
  title: string,
  body: (start: () => Promise<StorePlace>) => void,
): void {
  describeWithServers(['redis'], `${title}, on Redis`, () => body(onRedis));
  describeWithServers(['postgres'], `${title}, on PostgreSQL`, () =>
    body(() => inDatabase(startPostgresRecords())),
  );
  describe(`${title}, on SQLite`, () => body(() => inDatabase(startSqliteRecords())));
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
