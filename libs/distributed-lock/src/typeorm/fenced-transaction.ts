import type { DataSource, EntityManager } from 'typeorm';

import { contextLeases, LockConfigInvalidError, LockNotHeldError, type Lease } from '../core/index.js';
import { guardOf, guardsOfLease, type DataSourceGuard, type Isolation } from './guard/index.js';
import { pinnedTransaction } from './pinned-transaction.js';

export interface FencedTransactionOptions {
  /** Default: the guarded DataSource whose rows the locks held here protect, if there is one such. */
  readonly dataSource?: DataSource;
  /** Default: that of the DataSource, or of its database. In a transaction that is open already, only its own level. */
  readonly isolation?: Isolation;
}

/**
 * Runs `work` in a transaction that a stale owner cannot commit: its first statement pins the fence rows of the locks held
 * here, so that no successor can begin before the transaction has ended, and it commits only while these locks are held.
 *
 * `work` gets the manager of the transaction. Inside a transaction of the same DataSource it becomes a part of that one,
 * which is fenced from then on. On PostgreSQL and MariaDB (there in whole seconds, rounded up), the server ends the
 * transaction when it stands idle for longer than the leases had left at this point, so that a stopped owner does not keep
 * its successor out for ever. MySQL has no such limit, and SQLite neither that nor share locks: there the transaction is the
 * only writer of the whole file from its first statement on. On both, a stopped process keeps its successor out until it
 * goes on or is killed.
 *
 * Other transactions that begin under a lock look at the fence when they write a fenced row, and when they commit.
 *
 * @throws {FencedOutError} a newer owner is there; nothing was written
 * @throws {LeaseLostError | LeaseUncertainError} a lock was lost or is in doubt; nothing was written
 * @throws {LockNotHeldError} no lock is held here; `work` did not run
 * @throws {LockConfigInvalidError} it is not clear which DataSource is meant, or it has no guards; `work` did not run
 * @throws {RolledBackAtCommitError} PostgreSQL rolled back, because the error of a statement had been swallowed
 */
export async function fencedTransaction<T>(
  work: (manager: EntityManager) => Promise<T>,
  { dataSource, isolation }: FencedTransactionOptions = {},
): Promise<T> {
  const held = contextLeases().filter((lease) => lease.state.kind !== 'released');
  if (held.length === 0) throw nothingHeld();
  const guard = dataSource ? guardGiven(dataSource) : guardMeant(held);
  const leases = held.filter((lease) => guard.fence.concerns(lease.key));
  if (leases.length === 0) refuse('none of its entities is fenced by a lock that is held here');
  for (const lease of leases) lease.assertHeld();
  const idleLimitMs = Math.min(...leases.map((lease) => lease.remainingMs));
  return pinnedTransaction(guard, { leases, isolation, idleLimitMs }, work);
}

function guardGiven(dataSource: DataSource): DataSourceGuard {
  return (
    guardOf(dataSource) ?? refuse('it has no guards; see DistributedLockTypeOrmModule and guardDataSource()')
  );
}

function guardMeant(leases: readonly Lease[]): DataSourceGuard {
  const [guard, another] = new Set(leases.flatMap(guardsOfLease));
  if (!guard) refuse('no guarded DataSource has rows that the locks held here protect');
  if (another) refuse('several have rows that the locks held here protect; write { dataSource }');
  return guard;
}

function refuse(why: string): never {
  throw new LockConfigInvalidError(
    `fencedTransaction() cannot choose its DataSource: ${why}. The work did not run.`,
  );
}

function nothingHeld(): LockNotHeldError {
  const outlived = contextLeases()[0];
  return new LockNotHeldError(
    (outlived ? `Lock "${outlived.key}" has been released` : 'No lock is held here') +
      ', so there is nothing that could fence a transaction. The work did not run; call fencedTransaction() inside a ' +
      '@Locked method or withLock().',
    { key: outlived?.key, outcome: 'not-started' },
  );
}
