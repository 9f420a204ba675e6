import type { QueryRunner } from 'typeorm';

import { OutsideTransactionError } from '../../core/index.js';
import { type Dialect, writesOf } from '../sql/index.js';
import { endsTransaction } from './transaction-control.js';
import type { Transactions } from './transactions.js';
import { unfencedReason } from './unfenced.js';

const INSTEAD = "use transactionManager(), or unfenced('why', () => …) for what may happen more than once.";

/** Keeps all that an idempotent call writes in its transaction, so that it is there once, or not at all. */
export class KeptWrites {
  constructor(
    private readonly dialect: Dialect,
    private readonly transactions: Transactions,
  ) {}

  /** @throws {OutsideTransactionError} after `sql`, something would be there though the transaction is rolled back */
  requireInside(runner: QueryRunner, sql: string): void {
    if (this.transactions.passesBy(runner))
      this.#requireReading(
        sql,
        (table) =>
          `A write to ${table} went beside the transaction of an idempotent call, so it would stay when that is rolled back, ` +
          `and be done again. It was not sent; ${INSTEAD}`,
      );
    if (this.transactions.comesLate(runner))
      this.#requireReading(
        sql,
        (table) =>
          `A write to ${table} came when the transaction of its idempotent call was at its end, or rolled back: it would stay ` +
          'by itself, and be done again. It was not sent; await in the call all that it writes. What is to stay goes ' +
          "through unfenced('why', () => …).",
      );
    if (this.transactions.isKeptOpen(runner) && endsTransaction(this.dialect, sql))
      throw new OutsideTransactionError(
        `"${sql.trim().slice(0, 60)}" would end the transaction of an idempotent call before its record is completed, so that what ` +
          'it writes would be there without that. It was not sent; the call commits when its method returns, and rolls back ' +
          'when that throws.',
        {},
      );
  }

  #requireReading(sql: string, refusal: (table: string) => string): void {
    const [write] = writesOf(this.dialect, sql);
    if (write && unfencedReason() === undefined)
      throw new OutsideTransactionError(refusal(write.table.join('.')), {});
  }
}
