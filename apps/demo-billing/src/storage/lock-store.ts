import type { LockStore } from 'nestjs-distributed-lock';
import { redisStore } from 'nestjs-distributed-lock/redis';
import { typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { lockDatabase } from './data-source-options.js';
import type { StoreSettings } from './storage-settings.js';

/** The store that these settings name. A database is only pointed out to it: the store connects by itself. */
export function lockStore(settings: StoreSettings): LockStore {
  if (settings.kind === 'redis') return redisStore({ url: settings.url });
  return typeormStore({ dataSource: new DataSource(lockDatabase(settings)) });
}
