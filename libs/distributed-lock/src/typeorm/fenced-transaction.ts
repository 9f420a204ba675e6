import type { DataSource, EntityManager, QueryRunner } from 'typeorm';

import { contextLeases, LockConfigInvalidError, LockNotHeldError, type Lease } from '../core/index.js';
import { dialectOf, isSerializationFailure } from './sql/index.js';
import { guardOf, guardsOfLease, type DataSourceGuard, type Isolation } from './guard/index.js';

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
  const outer = guard.transactions.current();
  if (outer) requireLevel(isolation, outer.isolation ?? guard.dataSource.options.isolationLevel);
  let entered = false;
  const pinned = async (manager: EntityManager): Promise<T> => {
    const runner = manager.queryRunner as QueryRunner;
    await limitIdling(guard, runner, leases);
    for (const lease of leases) await guard.pins.pin(runner, lease);
    entered = true;
    return work(manager);
  };
  const manager = outer?.runner.manager ?? guard.dataSource.manager;
  const run = (): Promise<T> => transaction(manager, isolation, pinned);
  return run().catch((error: unknown) => {
    // The fence was raised between the snapshot and the pin. A savepoint would keep the snapshot: only a new one helps.
    if (outer || entered || !isSerializationFailure(error)) throw error;
    return run();
  });
}

function transaction<T>(
  manager: EntityManager,
  isolation: FencedTransactionOptions['isolation'],
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  return isolation === undefined ? manager.transaction(work) : manager.transaction(isolation, work);
}

/** A shorter limit of the application's own stays. */
async function limitIdling(
  { dataSource, transactions }: DataSourceGuard,
  runner: QueryRunner,
  leases: readonly Lease[],
): Promise<void> {
  const limitMs = Math.max(1, Math.floor(Math.min(...leases.map((lease) => lease.remainingMs))));
  switch (dialectOf(dataSource)) {
    case 'postgres':
      return void (await runner.query(
        `SELECT set_config(name, CASE WHEN CAST(setting AS bigint) BETWEEN 1 AND ${limitMs} THEN setting ELSE '${limitMs}' END, true) ` +
          "FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'",
      ));
    case 'mysql':
      return limitIdlingOnMariaDb(transactions, runner, Math.ceil(limitMs / 1_000));
    case 'sqlite':
      return;
  }
}

/** MySQL has no such limit, and reads the rest as a comment. The limit is the connection's, so it is put back afterwards. */
async function limitIdlingOnMariaDb(
  transactions: DataSourceGuard['transactions'],
  runner: QueryRunner,
  seconds: number,
): Promise<void> {
  const limit = '@@SESSION.idle_transaction_timeout';
  const shorter = `IF(${limit} BETWEEN 1 AND ${seconds}, ${limit}, ${seconds})`;
  const transaction = transactions.of(runner);
  const remembered = transaction?.afterwards ? '@lock_idle_limit' : limit;
  await runner.query(
    `SET @lock_idle_limit = @lock_idle_limit /*M!, @lock_idle_limit = ${remembered}, SESSION idle_transaction_timeout = ${shorter} */`,
  );
  if (transaction)
    transaction.afterwards =
      'SET /*M! SESSION idle_transaction_timeout = @lock_idle_limit, */ @lock_idle_limit = NULL';
}

function requireLevel(asked: Isolation | undefined, open: Isolation | undefined): void {
  if (asked === undefined || asked === open) return;
  throw new LockConfigInvalidError(
    `fencedTransaction() was asked for ${asked} inside a transaction that began with ${open ?? 'the default level'}, and ` +
      'a level cannot be changed any more. The work did not run; leave isolation out here, or give it to the outer one.',
  );
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
