export type { RedisAccess, RedisAddress, RedisClient, RedisPipeline } from './redis-server/index.js';
export {
  redisIdempotencyStore,
  redisStore,
  type RedisIdempotencyStoreOptions,
  type RedisStoreOptions,
} from './stores/redis/index.js';
export { redlockStore, type RedlockStoreOptions } from './stores/redlock/index.js';
