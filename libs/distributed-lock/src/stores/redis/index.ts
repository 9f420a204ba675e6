export { redisIdempotencyStore, type RedisIdempotencyStoreOptions } from './redis-idempotency-store.js';
export { redisStore, type RedisStoreOptions } from './redis-store.js';
