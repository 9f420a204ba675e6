export { postgresAdvisoryStore, type PostgresAdvisoryStoreOptions } from './advisory-store/index.js';
export {
  createLockTables,
  createLockTablesSql,
  dropLockTables,
  dropLockTablesSql,
  type LockTablesOptions,
  type LockTablesSqlOptions,
} from './create-lock-tables.js';
export {
  FencedBy,
  type FencedByOptions,
  LockTokenColumn,
  lockTokenColumn,
  type UnfencedWrites,
} from './entities/index.js';
export {
  fenced,
  type FencedRepository,
  readAndFence,
  type ReadAndFenceOptions,
} from './fenced-repository/index.js';
export { fencedTransaction, type FencedTransactionOptions } from './fenced-transaction.js';
export { createFenceTable } from './fence/index.js';
export {
  guardDataSource,
  type GuardOptions,
  RolledBackAtCommitError,
  Unfenced,
  unfenced,
} from './guard/index.js';
export { withExpectedLockToken } from './handed-over/index.js';
export {
  createIdempotencyTable,
  typeormIdempotencyStore,
  type TypeOrmIdempotencyStoreOptions,
} from './idempotency-table/index.js';
export { createLeaseTable, typeormStore, type TypeOrmStoreOptions } from './lease-table/index.js';
export {
  addLockTokenColumn,
  addLockTokenColumnSql,
  dropLockTokenColumn,
  dropLockTokenColumnSql,
  installWriteTrigger,
  installWriteTriggerSql,
  removeWriteTrigger,
  removeWriteTriggerSql,
  type TokenColumnOptions,
  type WriteTriggerOptions,
} from './migrations/index.js';
export { mysqlNamedLockStore, type MysqlNamedLockStoreOptions } from './named-lock-store/index.js';
export {
  claimBatch,
  insertOnce,
  leaseBatch,
  RowClaim,
  transition,
  withAdvisoryLock,
  withRowLock,
  type AdvisoryLockOptions,
  type BatchChoice,
  type DataSourceChoice,
  type InsertedOnce,
  type InsertOnceOptions,
  type LeaseBatchOptions,
  type LeasedRow,
  type LockedTransaction,
  type RowLockOptions,
  type RowsOf,
  type TimeoutOption,
  type TransitionOptions,
} from './primitives/index.js';
export type { Dialect } from './sql/index.js';
export { transactionManager } from './transaction-manager.js';
export {
  DistributedLockTypeOrmModule,
  type AsyncTypeOrmGuardOptions,
  type TypeOrmGuardOptions,
} from './typeorm-module.js';
