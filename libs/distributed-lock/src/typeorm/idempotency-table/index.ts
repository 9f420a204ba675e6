export { createIdempotencyTable } from './idempotency-table.js';
export { typeormIdempotencyStore, type TypeOrmIdempotencyStoreOptions } from './typeorm-idempotency-store.js';
