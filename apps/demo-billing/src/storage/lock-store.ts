import type { LockStore } from 'nestjs-distributed-lock';
import { redisStore, redlockStore } from 'nestjs-distributed-lock/redis';
import { postgresAdvisoryStore, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { lockDatabase } from './data-source-options.js';
import type { LockSettings } from './storage-settings.js';

/** The store that these settings name. A database is only pointed out to it: the store connects by itself. */
export function lockStore(settings: LockSettings): LockStore {
  switch (settings.kind) {
    case 'redis':
      return redisStore({ url: settings.url });
    case 'redlock':
      return redlockStore({ urls: settings.urls });
    case 'advisory':
      return postgresAdvisoryStore({ dataSource: new DataSource(lockDatabase(settings.database)) });
    default:
      return typeormStore({ dataSource: new DataSource(lockDatabase(settings)) });
  }
}
