export { mysqlNamedLockStore, type MysqlNamedLockStoreOptions } from './mysql-named-lock-store.js';
