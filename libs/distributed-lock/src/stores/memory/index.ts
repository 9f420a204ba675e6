export { memoryIdempotencyStore, type MemoryIdempotencyStoreOptions } from './memory-idempotency-store.js';
export { memoryStore, type MemoryStoreOptions } from './memory-store.js';
