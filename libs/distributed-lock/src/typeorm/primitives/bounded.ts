import type { EntityManager, ObjectLiteral, QueryRunner, Repository } from 'typeorm';

import { LockConfigInvalidError, LockTimeoutError, requireDurationMs } from '../../core/index.js';
import { dialectOf, driverCode, retryTransient, withMysqlLockLimit } from '../sql/index.js';
import { dataSourceOf } from './rows.js';

export interface TimeoutOption {
  /**
   * The longest wait for locks of others, in milliseconds; 0 is one try. Default 5 000. MariaDB and MySQL count whole
   * seconds, the next one, and MySQL one at least. A free connection is waited for as long, and a second at least.
   */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 5_000;
/** Even one try needs a connection. */
const SHORTEST_CONNECT_MS = 1_000;
/** PostgreSQL; MariaDB; MySQL with NOWAIT. */
const BUSY = /^(?:55P03|ER_LOCK_WAIT_TIMEOUT|ER_LOCK_NOWAIT)$/;

/** @throws {LockConfigInvalidError} it is no number of milliseconds */
export function timeoutOf({ timeoutMs = DEFAULT_TIMEOUT_MS }: TimeoutOption): number {
  requireDurationMs('timeoutMs', timeoutMs, { atLeast: 0 });
  return timeoutMs;
}

/** True when somebody else kept what was waited for. */
export function isBusy(error: unknown): boolean {
  return error instanceof LockTimeoutError || BUSY.test(driverCode(error));
}

/** @throws {LockConfigInvalidError} on SQLite, which has no locks but the one for the whole file */
export function requireRowLocks(manager: EntityManager, caller: string, instead: string): void {
  if (dialectOf(dataSourceOf(manager)) !== 'sqlite') return;
  throw new LockConfigInvalidError(
    `${caller} needs locks that SQLite does not have. Nothing was done; ${instead}.`,
  );
}

/**
 * Runs `work` in a transaction of its own, READ COMMITTED, or in a savepoint of the one that is open; `work` learns how much
 * time is left.
 *
 * @throws {LockTimeoutError} no connection was free in time; `work` did not run
 */
export function transactionWithin<T>(
  manager: EntityManager,
  timeoutMs: number,
  work: (manager: EntityManager, remainingMs: number) => Promise<T>,
): Promise<T> {
  const endsAtMs = performance.now() + timeoutMs;
  return new Promise<T>((resolve, reject) => {
    let late: LockTimeoutError | undefined;
    const timer = setTimeout(
      () => reject((late = noConnection(timeoutMs))),
      Math.max(timeoutMs, SHORTEST_CONNECT_MS),
    );
    const entered = (inner: EntityManager): Promise<T> => {
      clearTimeout(timer);
      if (late) throw late;
      return work(inner, Math.max(0, endsAtMs - performance.now()));
    };
    begin(manager, entered)
      .finally(() => clearTimeout(timer))
      .then(resolve, reject);
  });
}

/**
 * Connects a query runner; one that connects too late is released again.
 *
 * @throws {LockTimeoutError} no connection was free in time
 */
export function connectWithin(runner: QueryRunner, timeoutMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let late = false;
    const timer = setTimeout(
      () => {
        late = true;
        reject(noConnection(timeoutMs));
      },
      Math.max(timeoutMs, SHORTEST_CONNECT_MS),
    );
    const connected = async (): Promise<void> => (late ? runner.release() : resolve());
    runner
      .connect()
      .finally(() => clearTimeout(timer))
      .then(connected)
      .catch(reject);
  });
}

function begin<T>(manager: EntityManager, work: (manager: EntityManager) => Promise<T>): Promise<T> {
  return isInTransaction(manager) ? manager.transaction(work) : manager.transaction('READ COMMITTED', work);
}

export function isInTransaction({ queryRunner }: EntityManager): boolean {
  return queryRunner?.isTransactionActive === true;
}

/** Runs one statement of an open transaction that waits for locks of others no longer than `timeoutMs`. */
export function withLockLimit<T>(
  manager: EntityManager,
  timeoutMs: number,
  statement: () => Promise<T>,
): Promise<T> {
  return dialectOf(dataSourceOf(manager)) === 'postgres'
    ? postgresLimit(manager, timeoutMs, statement)
    : withMysqlLockLimit(manager, Math.ceil(timeoutMs / 1_000), statement);
}

/** When the statement fails, its savepoint or transaction is rolled back, and the limit with it. */
async function postgresLimit<T>(
  manager: EntityManager,
  timeoutMs: number,
  statement: () => Promise<T>,
): Promise<T> {
  const limit = `${Math.max(1, Math.floor(timeoutMs))}ms`; // 0 would be no limit
  const rows: { readonly before: string }[] = await manager.query(
    `SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1, true)`,
    [limit],
  );
  const result = await statement();
  await manager.query(`SELECT set_config('lock_timeout', $1, true)`, [rows[0]?.before]);
  return result;
}

/**
 * Runs `write`, which is a single statement, so that it waits no longer than `timeoutMs`; again, where the database asks for
 * it and no outer transaction would be lost. SQLite waits as its DataSource is configured.
 *
 * @throws {LockTimeoutError} somebody else kept the row or the key
 */
export async function boundedWrite<E extends ObjectLiteral, T>(
  repository: Repository<E>,
  { timeoutMs, caller }: { readonly timeoutMs: number; readonly caller: string },
  write: (repository: Repository<E>) => Promise<T>,
): Promise<T> {
  const { manager, target } = repository;
  if (dialectOf(dataSourceOf(manager)) === 'sqlite') return write(repository);
  const endsAtMs = performance.now() + timeoutMs;
  const attempt = (): Promise<T> =>
    transactionWithin(manager, Math.max(0, endsAtMs - performance.now()), (inner, remainingMs) =>
      withLockLimit(inner, remainingMs, () => write(inner.getRepository(target))),
    );
  try {
    return await (isInTransaction(manager) ? attempt() : retryTransient(timeoutMs, attempt));
  } catch (error) {
    throw isBusy(error) ? busyError(caller, timeoutMs, error) : error;
  }
}

export function busyError(caller: string, timeoutMs: number, cause: unknown): LockTimeoutError {
  if (cause instanceof LockTimeoutError) return cause;
  return new LockTimeoutError(
    `${caller} waited ${Math.round(timeoutMs)} ms for a lock that another transaction of the database kept. Nothing was ` +
      'written; try again, or look for a long transaction.',
    { waitedMs: timeoutMs, retryAfterMs: null, cause },
  );
}

function noConnection(timeoutMs: number): LockTimeoutError {
  return new LockTimeoutError(
    `No connection of the DataSource's pool was free within ${Math.round(timeoutMs)} ms. Nothing was done; the pool is too ` +
      'small for what runs at once, or transactions are too long.',
    { waitedMs: timeoutMs, retryAfterMs: null },
  );
}
