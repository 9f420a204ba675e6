import { createRequire } from 'node:module';

import type { LockStore } from 'nestjs-distributed-lock';
import { consulStore } from 'nestjs-distributed-lock/consul';
import { etcdStore } from 'nestjs-distributed-lock/etcd';
import { redisStore, redlockStore } from 'nestjs-distributed-lock/redis';
import { mysqlNamedLockStore, postgresAdvisoryStore, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { zookeeperStore } from 'nestjs-distributed-lock/zookeeper';
import { DataSource } from 'typeorm';

/** Where a child process of a test finds its store. */
export interface StorePlace {
  /** `redis://…`, `redlock:redis://…,redis://…,redis://…`, `postgres://…`, `mysql://…`, `http://…` for etcd, `zookeeper://…`, `consul:http://…`, or a path to a SQLite file. */
  readonly place: string;
  readonly enableWAL?: boolean;
}

export function storeAt({ place, enableWAL = true }: StorePlace): LockStore {
  if (place.startsWith('redlock:')) return redlockStore({ urls: place.slice('redlock:'.length).split(',') });
  if (place.startsWith('redis:')) return redisStore({ url: place });
  if (place.startsWith('http:')) return etcdStore({ hosts: place });
  if (place.startsWith('consul:')) return consulAt(new URL(place.slice('consul:'.length)));
  if (place.startsWith('zookeeper:')) return zookeeperStore({ hosts: new URL(place).host });
  if (place.startsWith('postgres+advisory:')) {
    const url = place.replace('+advisory', '');
    return postgresAdvisoryStore({ dataSource: new DataSource({ type: 'postgres', url }) });
  }
  if (place.startsWith('mysql+getlock:')) {
    const url = place.replace('+getlock', '');
    return mysqlNamedLockStore({ dataSource: new DataSource({ type: 'mysql', url }) });
  }
  return typeormStore({ dataSource: leaseDatabaseAt({ place, enableWAL }) });
}

/** Where the lease table of a place is; undefined if the place is no database. */
export function lockDatabaseAt(at: StorePlace): DataSource | undefined {
  return /^(?:postgres:|mysql:|\/)/.test(at.place) ? leaseDatabaseAt(at) : undefined;
}

function leaseDatabaseAt({ place, enableWAL = true }: StorePlace): DataSource {
  if (place.startsWith('postgres:')) return new DataSource({ type: 'postgres', url: place });
  if (place.startsWith('mysql:')) return new DataSource({ type: 'mysql', url: place });
  const driver: unknown = createRequire(import.meta.url)('libsql');
  return new DataSource({ type: 'better-sqlite3', driver, database: place, enableWAL });
}

function consulAt({ origin, searchParams }: URL): LockStore {
  return consulStore({ url: origin, lockDelayMs: Number(searchParams.get('lockDelayMs') ?? 0) });
}
