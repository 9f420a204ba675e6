import type { DataSource } from 'typeorm';

import {
  labelledKey,
  LockConfigInvalidError,
  LockInsideTransactionError,
  LockTimeoutError,
  type KeyInput,
} from '../../core/index.js';
import { guardOf } from '../guard/index.js';
import { type Dialect, dialectOf } from '../sql/index.js';
import { isBusy, timeoutOf, type TimeoutOption } from './bounded.js';
import type { AdvisoryLock, LockedTransaction } from './locked-transaction.js';
import { mysqlNamedLock } from './mysql-named-lock.js';
import { postgresAdvisoryLock } from './postgres-advisory-lock.js';
import { onlyDataSource, type DataSourceChoice } from './rows.js';

export interface AdvisoryLockOptions extends TimeoutOption, DataSourceChoice {
  /** What to do when another transaction has the lock: throw `LOCK_TIMEOUT` (default), or resolve with undefined. */
  readonly onBusy?: 'throw' | 'skip';
}

const LOCKS: Readonly<Record<Dialect, AdvisoryLock>> = {
  postgres: postgresAdvisoryLock,
  mysql: mysqlNamedLock,
  sqlite: () => {
    throw new LockConfigInvalidError(
      'withAdvisoryLock() needs locks by name, which SQLite does not have. Nothing was done; a transaction of a guarded ' +
        'DataSource is the only writer of the file from its beginning, and @Locked or withLock() lock by name.',
    );
  },
};

/**
 * Runs `work` in a transaction that nobody else runs for the same key: the lock is taken before its first look at the data,
 * and given back after its end, by the database itself, also when this process dies.
 *
 * For short work on rows that are not there yet, or on many of them: "the next invoice number", "only one import at a time".
 * `work` gets the manager of the transaction and has to use it. There is no token and nothing to renew: the commit is the
 * proof, so it protects this database only, and not calls to others. Both sides have to ask for the lock: it keeps nobody
 * out who does not. It takes a connection of the pool, also while it waits, and it is not re-entrant.
 *
 * PostgreSQL: `pg_advisory_xact_lock` on 64 bits of a digest of the key, also behind a pooler that deals in transactions.
 * MySQL and MariaDB: `GET_LOCK` on the connection of the transaction; refused on Galera, where each node has its own.
 *
 * @throws {LockTimeoutError} the key or the pool was busy for `timeoutMs`; `work` did not run
 * @throws {LockInsideTransactionError} a transaction is open here, whose snapshot may be older; `work` did not run
 * @throws {LeaseLostError} MySQL and MariaDB: the lock was gone before the commit; all was rolled back
 * @throws {LockConfigInvalidError} the database is SQLite or Galera, or it is not clear which DataSource is meant
 */
export async function withAdvisoryLock<T>(
  key: KeyInput,
  work: LockedTransaction<T>,
  options: AdvisoryLockOptions & { readonly onBusy: 'skip' },
): Promise<T | undefined>;
export async function withAdvisoryLock<T>(
  key: KeyInput,
  work: LockedTransaction<T>,
  options?: AdvisoryLockOptions,
): Promise<T>;
export async function withAdvisoryLock<T>(
  key: KeyInput,
  work: LockedTransaction<T>,
  options: AdvisoryLockOptions = {},
): Promise<T | undefined> {
  const { key: name } = labelledKey(key);
  const dataSource = options.dataSource ?? onlyDataSource('withAdvisoryLock()', () => true);
  const timeoutMs = timeoutOf(options);
  requireNoTransaction(dataSource, name);
  let entered = false;
  const entering: LockedTransaction<T> = (manager) => {
    entered = true;
    return work(manager);
  };
  try {
    return await LOCKS[dialectOf(dataSource)](dataSource, name, timeoutMs, entering);
  } catch (error) {
    if (entered || !isBusy(error)) throw error;
    if (options.onBusy === 'skip') return undefined;
    throw busy(name, timeoutMs, error);
  }
}

function requireNoTransaction(dataSource: DataSource, key: string): void {
  if (!guardOf(dataSource)?.transactions.current()) return;
  throw new LockInsideTransactionError(
    `The advisory lock "${key}" was asked for inside an open transaction, whose snapshot may be older than the lock. Nothing ` +
      'was taken. withAdvisoryLock() begins a transaction itself: call it first, and use the manager that it gives to its work.',
    { key },
  );
}

function busy(key: string, timeoutMs: number, cause: unknown): LockTimeoutError {
  if (cause instanceof LockTimeoutError && cause.key === undefined) return cause; // the pool's
  return new LockTimeoutError(
    `The advisory lock "${key}" stayed taken for ${timeoutMs} ms. The work did not run; try again later.`,
    { key, waitedMs: timeoutMs, retryAfterMs: null, cause },
  );
}
