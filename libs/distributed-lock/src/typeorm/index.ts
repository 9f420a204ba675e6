export { createLockTables } from './create-lock-tables.js';
export { FencedBy, LockTokenColumn, type FencedByOptions, type UnfencedWrites } from './fenced-by.js';
export { fencedTransaction, type FencedTransactionOptions } from './fenced-transaction.js';
export { createFenceTable } from './fence-table.js';
export { guardDataSource, type GuardOptions } from './guard-data-source.js';
export { createLeaseTable, typeormStore, type TypeOrmStoreOptions } from './lease-table/index.js';
export {
  DistributedLockTypeOrmModule,
  type AsyncTypeOrmGuardOptions,
  type TypeOrmGuardOptions,
} from './typeorm-module.js';
export { RolledBackAtCommitError } from './transactions.js';
export { Unfenced, unfenced } from './unfenced.js';
