import type { EntityManager, QueryRunner } from 'typeorm';

import { LockConfigInvalidError, type Lease } from '../core/index.js';
import type { DataSourceGuard, Isolation } from './guard/index.js';
import { dialectOf, isSerializationFailure } from './sql/index.js';

export interface PinnedTransactionOptions {
  /** Their fence rows stay as they are until the transaction has ended. */
  readonly leases: readonly Lease[];
  readonly isolation: Isolation | undefined;
  /** The server ends the transaction when it stands idle for longer, where it can. */
  readonly idleLimitMs: number;
}

/**
 * Runs `work` in a transaction of a guarded DataSource, or as a part of the one that is open in this call chain. Its first
 * statements pin the fence.
 *
 * @throws {FencedOutError} a newer owner is there; nothing was written
 * @throws {LockConfigInvalidError} it is to join a transaction of another level
 */
export async function pinnedTransaction<T>(
  guard: DataSourceGuard,
  { leases, isolation, idleLimitMs }: PinnedTransactionOptions,
  work: (manager: EntityManager, runner: QueryRunner) => Promise<T>,
): Promise<T> {
  const outer = guard.transactions.current();
  if (outer) requireLevel(isolation, outer.isolation ?? guard.dataSource.options.isolationLevel);
  let entered = false;
  const pinned = async (manager: EntityManager): Promise<T> => {
    const runner = manager.queryRunner as QueryRunner;
    await limitIdling(guard, runner, Math.max(1, Math.floor(idleLimitMs)));
    for (const lease of leases) await guard.pins.pin(runner, lease);
    entered = true;
    return work(manager, runner);
  };
  const manager = outer?.runner.manager ?? guard.dataSource.manager;
  const run = (): Promise<T> =>
    isolation === undefined ? manager.transaction(pinned) : manager.transaction(isolation, pinned);
  return run().catch((error: unknown) => {
    // The fence was raised between the snapshot and the pin. A savepoint would keep the snapshot: only a new one helps.
    if (outer || entered || !isSerializationFailure(error)) throw error;
    return run();
  });
}

/** A shorter limit of the application's own stays. */
async function limitIdling(
  { dataSource, transactions }: DataSourceGuard,
  runner: QueryRunner,
  limitMs: number,
): Promise<void> {
  switch (dialectOf(dataSource)) {
    case 'postgres':
      return limitIdlingOnPostgres(transactions, runner, limitMs);
    case 'mysql':
      return limitIdlingOnMariaDb(transactions, runner, Math.ceil(limitMs / 1_000));
    case 'sqlite':
      return;
  }
}

/** Asks for the level by the way: it may be the default of the server, the database or the user. */
async function limitIdlingOnPostgres(
  transactions: DataSourceGuard['transactions'],
  runner: QueryRunner,
  limitMs: number,
): Promise<void> {
  const [found] = (await runner.query(
    `SELECT set_config(name, CASE WHEN CAST(setting AS bigint) BETWEEN 1 AND ${limitMs} THEN setting ELSE '${limitMs}' END, true), ` +
      "current_setting('transaction_isolation') AS level FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'",
  )) as readonly { readonly level: string }[];
  const transaction = transactions.of(runner);
  if (transaction) transaction.oneSnapshot = !found?.level.startsWith('read');
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
