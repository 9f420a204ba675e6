import type { DataSource } from 'typeorm';

import { settleStatements, type SqliteHandle } from './settled-statements.js';
import { driverCode, retryTransient } from '../sql/index.js';
import { SingleConnectionTurns, type Turns } from './turns.js';

/** What better-sqlite3 and libsql wait inside the driver when they are told nothing. */
const DRIVER_TIMEOUT_MS = 5_000;
const READS = /^(?:\s|--[^\n]*\n|\/\*[\s\S]*?\*\/)*(?:select|pragma|explain|values)\b/i;
/** The snapshot of the transaction is too old for it to write, and stays so. */
const STALE_SNAPSHOT = 'SQLITE_BUSY_SNAPSHOT';

/** How the statements of a SQLite DataSource wait: for each other in this process, and for other processes. */
export class SqliteConnection {
  readonly turns: Turns;
  readonly #patienceMs: number;

  /** Takes the waiting out of the driver, where it would block the event loop and every renewal with it. */
  constructor(dataSource: DataSource) {
    const { timeout } = dataSource.options as { readonly timeout?: number };
    this.#patienceMs = timeout ?? DRIVER_TIMEOUT_MS;
    this.turns = new SingleConnectionTurns(this.#patienceMs);
    const { databaseConnection } = dataSource.driver as unknown as { databaseConnection: SqliteHandle };
    databaseConnection.pragma('busy_timeout = 0');
    settleStatements(databaseConnection);
    // What was prepared before, for example by migrations, is prepared anew.
    (dataSource.createQueryRunner() as { stmtCache?: Map<string, unknown> }).stmtCache?.clear();
  }

  /**
   * A transaction takes the write lock when it begins. One that took it at its first write would fail whenever anybody,
   * for example a renewal, has written since its first read.
   */
  immediate(sql: string): string {
    return sql === 'BEGIN TRANSACTION' ? 'BEGIN IMMEDIATE TRANSACTION' : sql;
  }

  /** Sends a statement when it is its turn, and again while another connection is writing. */
  send<T>(sql: string, statement: () => Promise<T>): Promise<T> {
    const patiently = (): Promise<T> => this.#whileBusy(statement);
    return READS.test(sql) ? patiently() : this.turns.take(patiently);
  }

  async #whileBusy<T>(statement: () => Promise<T>): Promise<T> {
    let stale: unknown;
    const result = await retryTransient(this.#patienceMs, () =>
      statement().catch((error: unknown): T => {
        if (driverCode(error) !== STALE_SNAPSHOT) throw error;
        stale = error;
        return undefined as T;
      }),
    );
    // eslint-disable-next-line @typescript-eslint/only-throw-error -- the driver's
    if (stale !== undefined) throw stale;
    return result;
  }
}
