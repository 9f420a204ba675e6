export { busyFor, grantName, rowsOf, type LeaseStatements, type Session } from './lease-statements.js';
export {
  createLeaseTable,
  DEFAULT_LEASE_TABLE,
  leaseStatements,
  leaseTableSql,
  postgresTable,
} from './lease-table.js';
export { typeormStore, type TypeOrmStoreOptions } from './typeorm-store.js';
