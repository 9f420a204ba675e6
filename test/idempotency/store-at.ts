import { createRequire } from 'node:module';

import type { IdempotencyStore } from 'nestjs-distributed-lock';
import { redisIdempotencyStore } from 'nestjs-distributed-lock/redis';
import { typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

/** For child processes: `redis://…`, `postgres://…`, `mysql://…`, or a path to a SQLite file. */
export function storeAt(place: string): IdempotencyStore {
  if (place.startsWith('redis:')) return redisIdempotencyStore({ url: place });
  return typeormIdempotencyStore({ dataSource: dataSourceAt(place) });
}

function dataSourceAt(place: string): DataSource {
  if (place.startsWith('postgres:')) return new DataSource({ type: 'postgres', url: place });
  if (place.startsWith('mysql:')) return new DataSource({ type: 'mysql', url: place });
  const driver: unknown = createRequire(import.meta.url)('libsql');
  return new DataSource({ type: 'better-sqlite3', driver, database: place, enableWAL: true });
}
