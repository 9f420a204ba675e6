import type { LockStore } from 'nestjs-distributed-lock';
import { consulStore } from 'nestjs-distributed-lock/consul';
import { etcdStore } from 'nestjs-distributed-lock/etcd';
import { redisStore } from 'nestjs-distributed-lock/redis';
import { createLockTables, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { zookeeperStore } from 'nestjs-distributed-lock/zookeeper';
import { DataSource } from 'typeorm';

import {
  mySqlKin,
  startConsul,
  startEtcd,
  startPostgres,
  startRedis,
  startZooKeeper,
  type TestServer,
} from '../servers/index.js';

/** A kind of server, which keeps its data when it is killed, and how a store reaches it on a port of this machine. */
interface StoreKind {
  readonly kind: 'redis' | 'postgres' | 'mariadb' | 'mysql' | 'etcd' | 'zookeeper' | 'consul';
  start(): Promise<TestServer>;
  storeAt(port: number): LockStore;
}

export const storeKinds: readonly StoreKind[] = [
  {
    kind: 'redis',
    start: () => startRedis({ appendOnly: true }),
    storeAt: (port) => redisStore({ url: `redis://127.0.0.1:${port}` }),
  },
  inDatabase('postgres', startPostgres, (port) => postgresAt(port)),
  ...mySqlKin.map(({ kind, start }) => inDatabase(kind, start, (port) => mySqlAt(kind, port))),
  {
    kind: 'etcd',
    start: () => startEtcd(),
    storeAt: (port) => etcdStore({ hosts: `http://127.0.0.1:${port}` }),
  },
  {
    kind: 'zookeeper',
    start: () => startZooKeeper(),
    storeAt: (port) => zookeeperStore({ hosts: `127.0.0.1:${port}` }),
  },
  {
    kind: 'consul',
    start: () => startConsul(),
    storeAt: (port) => consulStore({ url: `http://127.0.0.1:${port}` }),
  },
];

function inDatabase(
  kind: 'postgres' | 'mariadb' | 'mysql',
  startServer: () => Promise<TestServer>,
  databaseAt: (port: number) => DataSource,
): StoreKind {
  return {
    kind,
    async start() {
      const server = await startServer();
      await createLockTables(databaseAt(server.port));
      return server;
    },
    storeAt: (port) => typeormStore({ dataSource: databaseAt(port) }),
  };
}

function postgresAt(port: number): DataSource {
  return new DataSource({ type: 'postgres', url: `postgres://postgres@127.0.0.1:${port}/postgres` });
}

function mySqlAt(type: 'mariadb' | 'mysql', port: number): DataSource {
  return new DataSource({ type, url: `mysql://root@127.0.0.1:${port}/app` });
}
