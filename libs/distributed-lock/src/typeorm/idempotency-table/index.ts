export {
  createIdempotencyTable,
  DEFAULT_IDEMPOTENCY_TABLE,
  idempotencyTableSql,
} from './idempotency-table.js';
export { typeormIdempotencyStore, type TypeOrmIdempotencyStoreOptions } from './typeorm-idempotency-store.js';
