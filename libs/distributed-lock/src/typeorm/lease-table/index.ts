export { createLeaseTable, DEFAULT_LEASE_TABLE, leaseTableSql } from './lease-table.js';
export { typeormStore, type TypeOrmStoreOptions } from './typeorm-store.js';
