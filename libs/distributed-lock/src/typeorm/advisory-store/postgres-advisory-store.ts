import type { DataSource } from 'typeorm';

import { LockConfigInvalidError, type LockStore } from '../../core/index.js';
import { DEFAULT_LEASE_TABLE, leaseStatements } from '../lease-table/index.js';
import { SessionLockStore } from '../session-lock/index.js';
import { dialectOf } from '../sql/index.js';
import { AdvisoryLocks } from './advisory-locks.js';

export interface PostgresAdvisoryStoreOptions {
  /** Says where the database is. It is neither used nor closed, and need not be initialised. */
  readonly dataSource: DataSource;
  /** The table made by `createLockTables(dataSource)`, which keeps tokens and leases. Default `lock_lease`. */
  readonly table?: string;
}

/**
 * Locks that PostgreSQL keeps for a session (`pg_advisory_lock`), with a lease and a token in a row of the lease table. All
 * locks of a process share one connection of the store's own.
 *
 * A key that is taken is refused without a write, waiters are woken by NOTIFY, and whoever looks into `pg_locks` sees who has
 * what. Where the connection breaks, the advisory lock is free at once but the key is not: its holder may be alive, so the row
 * keeps it until the lease is over, and the holder takes the lock again on its next connection. A holder that is stopped beyond
 * its lease has its connection ended by its successor, for which both have to log in as the same role.
 *
 * Needs a connection of its own to the primary: a pooler is refused, also one that deals in sessions. Keys, rows and tokens
 * are those of `typeormStore()` on the same table, so processes with either keep each other out, and tokens go on rising.
 * Others can ask for the same lock only by its number, 64 bits of a digest.
 *
 * @throws {LockConfigInvalidError} the database is not PostgreSQL, or the name of the table is not usable
 */
export function postgresAdvisoryStore(options: PostgresAdvisoryStoreOptions): LockStore {
  const { dataSource, table = DEFAULT_LEASE_TABLE } = options;
  if (dialectOf(dataSource) !== 'postgres') {
    throw new LockConfigInvalidError(
      `postgresAdvisoryStore() needs a DataSource of type "postgres", not "${dataSource.options.type}". Use typeormStore().`,
    );
  }
  return new SessionLockStore({
    kind: 'postgres-advisory',
    dataSource,
    table,
    leases: leaseStatements(dataSource, table),
    locks: new AdvisoryLocks(dataSource, table),
  });
}
