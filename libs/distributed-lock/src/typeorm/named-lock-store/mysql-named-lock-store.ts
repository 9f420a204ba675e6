import type { DataSource } from 'typeorm';

import { LockConfigInvalidError, type LockStore } from '../../core/index.js';
import { DEFAULT_LEASE_TABLE, leaseStatements } from '../lease-table/index.js';
import { SessionLockStore } from '../session-lock/index.js';
import { dialectOf } from '../sql/index.js';
import { NamedLocks } from './named-locks.js';

export interface MysqlNamedLockStoreOptions {
  /** Says where the database is. It is neither used nor closed, and need not be initialised. */
  readonly dataSource: DataSource;
  /** The table made by `createLockTables(dataSource)`, which keeps tokens and leases. Default `lock_lease`. */
  readonly table?: string;
}

/**
 * Locks that MariaDB or MySQL keeps for a connection (`GET_LOCK`), with a lease and a token in a row of the lease table. All
 * locks of a process share one connection of the store's own; up to four more wait for locks that others have.
 *
 * Where the connection breaks, the named lock is free at once but the key is not: its holder may be alive, so the row keeps it
 * until the lease is over, and the holder takes the lock again on its next connection. A holder that is stopped beyond its
 * lease has its connection killed by its successor, for which both have to log in as the same user.
 *
 * Needs a connection of its own to the primary: a proxy that shares connections is refused, and so are Galera and groups with
 * several primaries, where each node has its own locks. MariaDB 10.0.2 or MySQL 5.7 is needed for more than one lock on a
 * connection. Keys, rows and tokens are those of `typeormStore()` on the same table, so processes with either keep each other
 * out, and tokens go on rising.
 *
 * @throws {LockConfigInvalidError} the database is neither MariaDB nor MySQL, or the name of the table is not usable
 */
export function mysqlNamedLockStore(options: MysqlNamedLockStoreOptions): LockStore {
  const { dataSource, table = DEFAULT_LEASE_TABLE } = options;
  if (dialectOf(dataSource) !== 'mysql') {
    throw new LockConfigInvalidError(
      `mysqlNamedLockStore() needs a DataSource of type "mariadb" or "mysql", not "${dataSource.options.type}". Use typeormStore().`,
    );
  }
  return new SessionLockStore({
    kind: 'mysql-named-lock',
    dataSource,
    table,
    leases: leaseStatements(dataSource, table),
    locks: new NamedLocks(dataSource, table),
  });
}
