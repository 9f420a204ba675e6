import type { DataSource } from 'typeorm';

import { LockConfigInvalidError, StoreUnavailableError } from '../../core/index.js';
import type {
  ClaimAnswer,
  IdempotencyStore,
  RecordClaim,
  RecordEnding,
  RecordRenewal,
  RecordTransactions,
  StoredRecord,
  StoredResult,
} from '../../idempotency/index.js';
import { requireSharedDatabase } from '../connection/index.js';
import { dialectOf, driverCode } from '../sql/index.js';
import { DEFAULT_IDEMPOTENCY_TABLE, recordStatements } from './idempotency-table.js';
import { GuardedTransactions } from './guarded-transactions.js';
import { OwnPool } from './own-pool.js';
import type { RecordStatements, Session } from './record-statements.js';

export interface TypeOrmIdempotencyStoreOptions {
  /**
   * Says where the database is. It is neither used nor closed, and need not be initialised; but the transactions of
   * `transactional` calls are its own, and for them it has to be initialised and guarded.
   */
  readonly dataSource: DataSource;
  /** The table made by `createIdempotencyTable(dataSource)`. Default `idempotency_record`. */
  readonly table?: string;
  /** The most connections of the store's own, in this process. Default 4. SQLite always has one. */
  readonly poolSize?: number;
}

const DEFAULT_POOL_SIZE = 4;
/** Shorter leases would be over before a busy database has answered. */
const MIN_LEASE_MS = 20;
const BOOT_TIMEOUT_MS = 5_000;
/** Each race has a winner, so a call that keeps losing them meets somebody new each time. */
const MOST_RACES = 50;

/**
 * Idempotency records in a table of the application's own database: PostgreSQL, MySQL, MariaDB, or a SQLite file that all
 * processes of one machine share. One statement to claim and one to complete; one to replay, and two on MySQL and MariaDB.
 *
 * Statements run on connections of the store's own and commit by themselves, so a duplicate is seen at once, and takes
 * nothing from the application's pool while it waits. Only the database's clock counts. Expired rows stay until they are
 * purged.
 *
 * @throws {LockConfigInvalidError} the database is not supported or in memory, or the name of the table is not usable
 */
export function typeormIdempotencyStore(options: TypeOrmIdempotencyStoreOptions): IdempotencyStore {
  const { dataSource, table = DEFAULT_IDEMPOTENCY_TABLE, poolSize = DEFAULT_POOL_SIZE } = options;
  requireSharedDatabase(dataSource);
  if (!Number.isInteger(poolSize) || poolSize < 1) {
    throw new LockConfigInvalidError(
      `poolSize is ${String(poolSize)}; write a number of connections, at least 1.`,
    );
  }
  const statements = recordStatements(dataSource, table);
  return new TypeOrmIdempotencyStore(
    dialectOf(dataSource),
    dataSource,
    table,
    statements,
    new OwnPool(dataSource, poolSize),
  );
}

class TypeOrmIdempotencyStore implements IdempotencyStore {
  readonly minLeaseMs = MIN_LEASE_MS;
  readonly transactions: RecordTransactions;

  constructor(
    readonly kind: string,
    dataSource: DataSource,
    private readonly table: string,
    private readonly statements: RecordStatements,
    private readonly pool: OwnPool,
  ) {
    this.transactions = new GuardedTransactions(dataSource, statements);
  }

  async open(): Promise<void> {
    const complaint = await this.pool
      .run(BOOT_TIMEOUT_MS, (session) => this.statements.check(session))
      .catch((error: unknown) => this.#complaintOf(error));
    if (complaint === null) return;
    throw new LockConfigInvalidError(
      `The idempotency table "${this.table}" cannot be used: ${complaint}. ` +
        'Call createIdempotencyTable(dataSource) once, for example in a migration.',
    );
  }

  claim(claim: RecordClaim, timeoutMs: number): Promise<ClaimAnswer> {
    return this.pool.run(timeoutMs, async (session) => {
      for (let race = 0; race < MOST_RACES; race += 1) {
        const answer = await this.statements.claim(session, claim);
        if (answer) return answer;
      }
      throw new Error(`another caller was faster ${MOST_RACES} times in a row`);
    });
  }

  renew(renewal: RecordRenewal, timeoutMs: number): Promise<'renewed' | 'lost'> {
    return this.#word(timeoutMs, 'renewed', 'lost', (session) => this.statements.renew(session, renewal));
  }

  settle(
    id: string,
    ownerId: string,
    ending: RecordEnding,
    timeoutMs: number,
  ): Promise<'settled' | 'refused'> {
    const settle = async (session: Session): Promise<boolean> =>
      (await this.statements.settle(session, id, ownerId, ending)) ||
      (ending.kind === 'done' && (await this.statements.wasCompleted(session, id, ownerId)));
    return this.#word(timeoutMs, 'settled', 'refused', settle);
  }

  resolve(
    id: string,
    result: StoredResult,
    keepMs: number,
    timeoutMs: number,
  ): Promise<'resolved' | 'refused'> {
    const resolve = (session: Session): Promise<boolean> =>
      this.statements.resolve(session, id, result, keepMs);
    return this.#word(timeoutMs, 'resolved', 'refused', resolve);
  }

  forget(id: string, timeoutMs: number): Promise<'forgotten' | 'running' | 'absent'> {
    return this.pool.run(timeoutMs, (session) => this.statements.forget(session, id));
  }

  read(id: string, timeoutMs: number): Promise<StoredRecord | null> {
    return this.pool.run(timeoutMs, (session) => this.statements.read(session, id));
  }

  purge(limit: number, timeoutMs: number): Promise<number> {
    return this.pool.run(timeoutMs, (session) => this.statements.purge(session, limit));
  }

  close(): Promise<void> {
    return this.pool.close();
  }

  async #word<Yes, No>(
    timeoutMs: number,
    yes: Yes,
    no: No,
    work: (session: Session) => Promise<boolean>,
  ): Promise<Yes | No> {
    return (await this.pool.run(timeoutMs, work)) ? yes : no;
  }

  /** What the database has against the table; it may also not have answered at all. */
  #complaintOf(error: unknown): string {
    const refused =
      /^(?:42|3F)...$|^SQLITE_ERROR$|^ER_(?:NO_SUCH_TABLE|BAD_FIELD_ERROR|NO_DB_ERROR|\w+ACCESS_DENIED_ERROR)$/.test(
        driverCode(error),
      );
    if (refused) return (error as Error).message;
    throw new StoreUnavailableError(
      `The database of the idempotency table "${this.table}" gave no answer. Nothing was claimed; ` +
        'check that it runs and can be reached.',
      { cause: error },
    );
  }
}
