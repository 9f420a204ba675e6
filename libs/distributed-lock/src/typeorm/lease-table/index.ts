export { createLeaseTable } from './lease-table.js';
export { typeormStore, type TypeOrmStoreOptions } from './typeorm-store.js';
