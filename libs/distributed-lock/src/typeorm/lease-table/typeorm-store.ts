import type { DataSource } from 'typeorm';

import {
  LockConfigInvalidError,
  StoreUnavailableError,
  type Busy,
  type Claim,
  type Grant,
  type LockStore,
  type KeyWatch,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewalAnswer,
} from '../../core/index.js';
import { type Dialect, dialectOf, driverCode, retryTransient, storedKey } from '../sql/index.js';
import { PostgresListener } from '../release-notices/index.js';
import { inOwnSession, openOwnConnection, requireSharedDatabase } from '../connection/index.js';
import { grantName, type LeaseStatements, type Session } from './lease-statements.js';
import { DEFAULT_LEASE_TABLE, leaseStatements, postgresTable } from './lease-table.js';

export interface TypeOrmStoreOptions {
  /** Says where the database is. It is neither used nor closed, and need not be initialised. */
  readonly dataSource: DataSource;
  /** The table made by `createLockTables(dataSource)`. Default `lock_lease`. */
  readonly table?: string;
  /** The most connections of the store's own to a database server, in this process. Default 4. */
  readonly poolSize?: number;
}

const DEFAULT_POOL_SIZE = 4;
/** Shorter leases would be over before a busy database has answered. */
const MIN_TTL_MS = 20;
const BOOT_TIMEOUT_MS = 5_000;

/**
 * Locks in a table of the application's own database: PostgreSQL, MariaDB, MySQL, or a SQLite file that all processes of one
 * machine share.
 *
 * Statements run on connections of the store's own and commit by themselves, so they take nothing from the application's
 * pool and survive the rollback of its transactions. Only the database's clock counts. A row stays for every key that was
 * ever locked, and keeps its last token; one that has been free for a month may be deleted. On SQLite, a transaction of the
 * application that writes for longer than the ttl keeps renewals out, and its leases are lost.
 *
 * @throws {LockConfigInvalidError} the database is not supported or in memory, or the name of the table is not usable
 */
export function typeormStore(options: TypeOrmStoreOptions): LockStore {
  const { dataSource, table = DEFAULT_LEASE_TABLE, poolSize = DEFAULT_POOL_SIZE } = options;
  requireSharedDatabase(dataSource);
  if (!Number.isInteger(poolSize) || poolSize < 1) {
    throw new LockConfigInvalidError(
      `poolSize is ${String(poolSize)}; write a number of connections, at least 1.`,
    );
  }
  return new TypeOrmStore(dataSource, table, poolSize);
}

class TypeOrmStore implements LockStore {
  readonly kind: Dialect;
  readonly minTtlMs = MIN_TTL_MS;
  readonly keepsReleasedKeys = true;
  /** PostgreSQL alone can tell. */
  readonly watch?: (key: string, wake: () => void) => KeyWatch;
  readonly #statements: LeaseStatements;
  readonly #listener: PostgresListener | undefined;
  #own: Promise<DataSource> | undefined;
  #closed = false;

  constructor(
    private readonly dataSource: DataSource,
    private readonly table: string,
    private readonly poolSize: number,
  ) {
    this.kind = dialectOf(dataSource);
    this.#statements = leaseStatements(dataSource, table);
    if (this.kind !== 'postgres') return;
    const listener = new PostgresListener(dataSource, postgresTable(dataSource, table));
    this.watch = (key, wake) => listener.watch(storedKey(key), wake);
    this.#listener = listener;
  }

  async open(): Promise<void> {
    const complaint = await this.#run(BOOT_TIMEOUT_MS, (session) => this.#statements.check(session)).catch(
      (error: unknown) => this.#complaintOf(error),
    );
    if (complaint === null) return;
    throw new LockConfigInvalidError(
      `The lease table "${this.table}" cannot be used: ${complaint}. ` +
        'Call createLockTables(dataSource) once, for example in a migration.',
    );
  }

  tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    const stored = { ...claim, key: storedKey(claim.key) };
    return this.#run(timeoutMs, (session) => this.#statements.tryAcquire(session, stored));
  }

  async renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    if (claims.length === 0) return [];
    const stored = claims.map((claim) => ({ ...claim, key: storedKey(claim.key) }));
    const renewed = await this.#run(timeoutMs, (session) => this.#statements.renew(session, stored));
    return stored.map(({ ownerId, key }) => (renewed.has(grantName(ownerId, key)) ? 'renewed' : 'lost'));
  }

  async release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    const stored = { ...request, key: storedKey(request.key) };
    const done = await this.#run(timeoutMs, (session) => this.#statements.release(session, stored));
    return done ? 'released' : 'not-owner';
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#listener?.close();
    const own = await this.#own?.catch(() => undefined); // it never opened
    this.#own = undefined;
    if (own?.isInitialized) await own.destroy();
  }

  /** Nothing is begun once `timeoutMs` have passed: nobody listens any more. */
  async #run<T>(timeoutMs: number, work: (session: Session) => Promise<T>): Promise<T> {
    const endsAtMs = performance.now() + timeoutMs;
    const own = await this.#connection();
    const remainingMs = (): number => endsAtMs - performance.now();
    return retryTransient(remainingMs(), () => inOwnSession(own, remainingMs(), work));
  }

  /** Opened at the first use, and again when that failed. Later the pool itself replaces what breaks. */
  #connection(): Promise<DataSource> {
    if (this.#closed) return Promise.reject(new Error('this lock store has been closed'));
    this.#own ??= openOwnConnection(this.dataSource, { poolSize: this.poolSize }).catch((error: unknown) => {
      this.#own = undefined;
      throw error;
    });
    return this.#own;
  }

  /** What the database has against the table; it may also not have answered at all. */
  #complaintOf(error: unknown): string {
    const refused =
      /^(?:42|3F)...$|^SQLITE_ERROR$|^ER_(?:NO_SUCH_TABLE|BAD_FIELD_ERROR|NO_DB_ERROR|\w+ACCESS_DENIED_ERROR)$/.test(
        driverCode(error),
      );
    if (refused) return (error as Error).message;
    throw new StoreUnavailableError(
      `The database of the lease table "${this.table}" gave no answer. Nothing was locked; check that it runs and can be reached.`,
      { cause: error },
    );
  }
}
