export type { RedisClient } from './redis-client.js';
export { redisStore, type RedisStoreOptions } from './redis-store.js';
