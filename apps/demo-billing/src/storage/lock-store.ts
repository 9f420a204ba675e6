import type { LockStore } from 'nestjs-distributed-lock';
import { consulStore } from 'nestjs-distributed-lock/consul';
import { etcdStore } from 'nestjs-distributed-lock/etcd';
import { redisStore, redlockStore } from 'nestjs-distributed-lock/redis';
import { mysqlNamedLockStore, postgresAdvisoryStore, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { zookeeperStore } from 'nestjs-distributed-lock/zookeeper';
import { DataSource } from 'typeorm';

import type { Login } from '../command-line/server-list.js';
import { lockDatabase } from './data-source-options.js';
import type { LockSettings, ServerDatabase } from './storage-settings.js';

/** The store that these settings name. A database is only pointed out to it: the store connects by itself. */
export function lockStore(settings: LockSettings): LockStore {
  switch (settings.kind) {
    case 'redis':
      return redisStore(settings.place);
    case 'redlock':
      return redlockStore({ urls: settings.urls });
    case 'etcd':
      return etcdStore({ hosts: settings.hosts, auth: settings.login });
    case 'zookeeper':
      return zookeeperStore({ hosts: settings.hosts, auth: digest(settings.login) });
    case 'consul':
      return consulStore({ url: settings.url, token: settings.token });
    case 'session':
      return sessionLocks(settings.database);
    default:
      return typeormStore({ dataSource: new DataSource(lockDatabase(settings)) });
  }
}

function sessionLocks(database: ServerDatabase): LockStore {
  const dataSource = new DataSource(lockDatabase(database));
  return database.kind === 'mysql'
    ? mysqlNamedLockStore({ dataSource })
    : postgresAdvisoryStore({ dataSource });
}

function digest(login: Login | undefined) {
  return login && { scheme: 'digest', credentials: `${login.username}:${login.password}` };
}
