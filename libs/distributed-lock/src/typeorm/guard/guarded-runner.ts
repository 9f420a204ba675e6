import type { QueryRunner } from 'typeorm';

import { FencedOutError } from '../../core/index.js';
import type { FencePins } from './fence-pins.js';
import { type GuardExpressions, isLaxSession } from './guard-expression.js';
import type { KeptWrites } from './kept-writes.js';
import { override } from './override.js';
import { isAboutToken, isRefusedNull } from './refused-null.js';
import type { PoolWaits } from './pool-waits.js';
import type { Proofs } from './proofs.js';
import type { Refusals } from './refusals.js';
import type { SqliteConnection } from '../connection/index.js';
import type { StatementGuards } from './statement-guards.js';
import type { StatementNet } from './statement-net.js';
import type { Transactions } from './transactions.js';

type Query = (sql: string, parameters?: unknown[], structured?: boolean) => Promise<unknown>;

export interface RunnerGuardParts {
  readonly keptWrites: KeptWrites;
  readonly net: StatementNet;
  readonly transactions: Transactions;
  readonly expressions: GuardExpressions;
  readonly statements: StatementGuards;
  readonly pins: FencePins;
  readonly poolWaits: PoolWaits;
  readonly proofs: Proofs;
  readonly refusals: Refusals;
  /** How statements wait, where the driver cannot. */
  readonly sqlite: SqliteConnection | undefined;
}

/** Stands before every statement of a DataSource's query runners, whichever way it comes. */
export class RunnerGuard {
  /** SQLite has one query runner for all, and gives it out again and again. */
  readonly #guarded = new WeakSet<QueryRunner>();

  constructor(private readonly parts: RunnerGuardParts) {}

  guard<R extends QueryRunner>(runner: R): R {
    if (this.#guarded.has(runner)) return runner;
    this.#guarded.add(runner);
    this.#guardQuery(runner);
    this.#guardStream(runner);
    this.#followTransactions(runner);
    if (!this.parts.sqlite) this.parts.poolWaits.follow(runner);
    return runner;
  }

  #guardQuery(runner: QueryRunner): void {
    const query = runner.query.bind(runner) as Query;
    // Not an async function: BEGIN has to mark the caller's chain.
    const guarded: Query = (sql, ...rest) => {
      const sent = this.parts.sqlite?.immediate(sql) ?? sql;
      const run = async (): Promise<unknown> => {
        const afterwards = this.parts.transactions.of(runner)?.afterwards;
        const result = await this.#run(runner, sql, () => query(sent, ...rest));
        // A connection that cannot be told is lost, and its settings with it.
        if (afterwards && !this.parts.transactions.of(runner)) await query(afterwards).catch(() => undefined);
        return result;
      };
      return run().catch((error: unknown) => {
        this.parts.transactions.failed(runner, error);
        const explained = this.#explained(sql, error);
        if (explained instanceof FencedOutError) this.parts.transactions.doom(runner, explained);
        throw explained;
      });
    };
    override(runner, 'query', guarded as QueryRunner['query']);
  }

  async #run(runner: QueryRunner, sql: string, send: () => Promise<unknown>): Promise<unknown> {
    const { transactions, keptWrites, net, pins, sqlite } = this.parts;
    keptWrites.requireInside(runner, sql);
    const outer = transactions.of(runner);
    const control = transactions.beforeStatement(runner, sql);
    try {
      for (const stamp of net.admit(sql)) await stamp.run(runner);
      if (control === 'commit') await pins.pinBeforeCommit(runner);
      const result = await (sqlite ? sqlite.send(sql, send) : send());
      transactions.afterStatement(runner, control);
      return result;
    } catch (error) {
      if (control === 'begin' && !outer) transactions.ended(runner);
      throw error;
    }
  }

  /** None of the ways that need stamps opens a stream. */
  #guardStream(runner: QueryRunner): void {
    const stream = runner.stream.bind(runner);

    override(runner, 'stream', async (sql, ...rest) => {
      this.parts.keptWrites.requireInside(runner, sql);
      this.parts.transactions.beforeStatement(runner, sql);
      this.parts.net.admit(sql);
      return stream(sql, ...rest);
    });
  }

  #followTransactions(runner: QueryRunner): void {
    const { transactions } = this.parts;
    const start = runner.startTransaction.bind(runner);
    const release = runner.release.bind(runner);
    // Not an async function: the mark has to reach the caller's chain.
    override(runner, 'startTransaction', (isolation) => {
      const outer = transactions.of(runner);
      transactions.markChain(runner, isolation);
      return start(isolation).catch((error: unknown) => {
        if (!outer) transactions.ended(runner);
        throw error;
      });
    });
    override(runner, 'release', async () => {
      // A pool would hand the open transaction, with its locks and pins, to whoever comes next. SQLite has no pool.
      if (transactions.of(runner) && !this.parts.sqlite) {
        transactions.mayEnd(runner);
        await runner.query('ROLLBACK').catch(() => undefined); // on a connection that is gone, the server has done it
        transactions.ended(runner);
      }
      if (!runner.isTransactionActive) transactions.ended(runner);
      return release();
    });
  }

  /** Says FENCED_OUT where the database refused the value of a guard; all other errors are the user's. */
  #explained(sql: string, error: unknown): unknown {
    const { net, expressions, statements, refusals, proofs } = this.parts;
    const isRaised = statements.isRefusal(error);
    if (!isRaised && !isRefusedNull(error) && !isLaxSession(error)) return error;
    const entity = net.guardedEntity(sql);
    if (!entity) return error;
    if (isLaxSession(error)) return refusals.laxSession(entity, error);
    if (!isRaised && !isAboutToken(entity, error)) return error;
    return expressions.markIn(sql) === 'free'
      ? refusals.keyWasLocked(entity, error)
      : refusals.byDatabase(entity, proofs.shown(entity), error);
  }
}
