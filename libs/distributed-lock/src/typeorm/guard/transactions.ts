import { AsyncLocalStorage } from 'node:async_hooks';

import type { QueryRunner } from 'typeorm';

import { contextLeases, FencedOutError, type Lease } from '../../core/index.js';
import { driverCode } from '../sql/index.js';
import { currentOperation } from './operations.js';
import { RolledBackAtCommitError } from './rolled-back-at-commit.js';
import { type Control, controlOf } from './transaction-control.js';
import { unfencedReason } from './unfenced.js';

/** A transaction of a guarded DataSource, from BEGIN to COMMIT or ROLLBACK. */
export interface Transaction {
  readonly runner: QueryRunner;
  /** What was held when it began, and what it was fenced by since. It commits only while all of them are held. */
  readonly leases: Set<Lease>;
  /** Those whose fence row stays as it is until the end. */
  readonly pinned: Set<Lease>;
  /** What its BEGIN asked for; undefined: the default of the database, or begun in SQL. */
  readonly isolation: Isolation | undefined;
  open: boolean;
  /** Set: whatever is written in its call chain has to be a part of it. */
  kept: KeptStage | undefined;
  /** The refusal after which it must not commit, even if user code swallows it. */
  doom: FencedOutError | undefined;
  /** After this the server has rolled it back by itself, and later statements would commit one by one. */
  undoneBy: Error | undefined;
  /** It goes on seeing what it saw first; undefined: nobody has asked. */
  oneSnapshot: boolean | undefined;
  /** SQL that puts a setting of the connection back when it has ended. */
  afterwards: string | undefined;
}

export type Isolation = NonNullable<Parameters<QueryRunner['startTransaction']>[0]>;

/** `complete`: whoever began it is about to end it. `ending`: COMMIT or ROLLBACK has been sent, and is not answered. */
type KeptStage = 'open' | 'complete' | 'ending' | 'committed' | 'rolled back';

interface Mark {
  readonly transaction: Transaction;
  readonly outer: Mark | undefined;
}

const UNHARMED = {
  kept: undefined,
  doom: undefined,
  undoneBy: undefined,
  oneSnapshot: undefined,
  afterwards: undefined,
};
const NOWHERE = { transaction: { open: false } as Transaction };

/** Watches the transactions of one DataSource, statement by statement, so that no way to begin or end one is missed. */
export class Transactions {
  readonly #open = new WeakMap<QueryRunner, Transaction>();
  readonly #marks = new AsyncLocalStorage<Mark>();
  readonly #commitTags = new WeakMap<QueryRunner, unknown>();
  readonly #lastKept = new WeakMap<QueryRunner, Transaction>();

  /** @param oneConnectionForAll statements of other call chains come between those of a transaction, as on SQLite */
  constructor(private readonly oneConnectionForAll: boolean) {
    // Before its first use the storage does not follow call chains yet, and a mark would reach everybody.
    this.runApart(() => undefined);
  }

  /** The transaction that `runner` has open. */
  of(runner: QueryRunner): Transaction | undefined {
    return this.#open.get(runner);
  }

  /** The innermost transaction that this call chain is inside of. */
  current(): Transaction | undefined {
    return openMark(this.#marks.getStore())?.transaction;
  }

  /** All transactions that this call chain is inside of, the innermost first. */
  enclosing(): readonly Transaction[] {
    const found: Transaction[] = [];
    for (let mark = openMark(this.#marks.getStore()); mark; mark = openMark(mark.outer)) {
      found.push(mark.transaction);
    }
    return found;
  }

  /** Runs `work` in a chain that is inside of the transaction which `runner` has open. */
  runInside<T>(runner: QueryRunner, work: () => T): T {
    return this.#marks.run(this.#mark(this.#begin(runner)), work);
  }

  /** Runs `begin`, which may mark the chain, without leaving the mark on the caller's. */
  runApart<T>(begin: () => T): T {
    // A store of its own: run() with the present one would do nothing.
    return this.#marks.run({ ...NOWHERE, outer: openMark(this.#marks.getStore()) }, begin);
  }

  /**
   * Marks the rest of the present call chain: there is no callback that could bound it. The mark means something only
   * while that very transaction is open.
   */
  markChain(runner: QueryRunner, isolation?: Isolation): Transaction {
    const transaction = this.#begin(runner, isolation);
    this.#marks.enterWith(this.#mark(transaction));
    return transaction;
  }

  /** The fence row is pinned: from now on the transaction of `runner` is under this lease, whenever it began. */
  pinned(runner: QueryRunner, lease: Lease): void {
    const transaction = this.of(runner);
    transaction?.leases.add(lease);
    transaction?.pinned.add(lease);
  }

  /** Under what the transaction of `runner` is, though the fence was not asked yet. */
  unpinned(runner: QueryRunner): readonly Lease[] {
    const { leases = [], pinned } = this.of(runner) ?? {};
    return [...leases].filter((lease) => !pinned?.has(lease));
  }

  doom(runner: QueryRunner, refusal: FencedOutError): void {
    const transaction = this.of(runner);
    if (transaction) transaction.doom ??= refusal;
  }

  /** From now on a write of its call chain that goes through another runner is refused. */
  keepAllWrites(runner: QueryRunner): void {
    const transaction = this.of(runner);
    if (!transaction) return;
    transaction.kept = 'open';
    this.#lastKept.set(runner, transaction);
  }

  /** Nothing more is to come into the transaction: it may be ended. */
  mayEnd(runner: QueryRunner): void {
    const transaction = this.of(runner);
    if (transaction?.kept) transaction.kept = 'complete';
  }

  /** True when a transaction that keeps all writes is open in this call chain, and `runner` is not its. */
  passesBy(runner: QueryRunner): boolean {
    return this.enclosing().some(({ kept, runner: own }) => kept !== undefined && own !== runner);
  }

  /** True when the transaction that this statement belongs to keeps all writes, and is not complete. */
  isKeptOpen(runner: QueryRunner): boolean {
    const transaction = this.of(runner);
    return transaction?.kept === 'open' && (!this.oneConnectionForAll || this.current() === transaction);
  }

  /** True when the transaction that this statement was meant for is ending, or was rolled back: it would stand by itself. */
  comesLate(runner: QueryRunner): boolean {
    if (!this.oneConnectionForAll) return isLate(this.#lastKept.get(runner));
    for (let mark = this.#marks.getStore(); mark; mark = mark.outer)
      if (isLate(mark.transaction)) return true;
    return false;
  }

  /** Tells of the error of a statement. */
  failed(runner: QueryRunner, error: unknown): void {
    const transaction = this.of(runner);
    if (transaction && error instanceof Error && UNDOES_ALL.test(driverCode(error)))
      transaction.undoneBy ??= error;
  }

  /**
   * Before a statement is sent; in the caller's turn, so that BEGIN marks the caller's chain.
   *
   * @throws {FencedOutError} the transaction had a write refused
   * @throws {QueryFailedError} the server has rolled it back; once more what it said then
   * @throws {LeaseLostError | LeaseUncertainError | LockNotHeldError} it is to commit, and a lease it began under is over
   */
  beforeStatement(runner: QueryRunner, sql: string): Control {
    const control = controlOf(sql);
    const transaction = this.of(runner);
    // Whoever commits is a part, even where the mark did not reach its chain.
    const isPart = !this.oneConnectionForAll || control === 'commit' || this.current() === transaction;
    if (isPart && transaction && !/^\s*(?:rollback|abort)\b/i.test(sql)) {
      if (transaction.doom) throw doomed(transaction.doom);
      if (transaction.undoneBy) throw transaction.undoneBy;
    }
    if (control === 'begin') this.markChain(runner);
    if (transaction?.kept && isPart && (control === 'commit' || control === 'rollback'))
      transaction.kept = 'ending';
    if (control === 'commit') for (const lease of transaction?.leases ?? []) lease.assertHeld();
    return control;
  }

  /** After a statement was done. @throws {RolledBackAtCommitError} the server says that COMMIT did the opposite */
  afterStatement(runner: QueryRunner, control: Control): void {
    if (control !== 'commit' && control !== 'rollback') return;
    const rolledBack = control === 'rollback' || this.#commitTags.get(runner) === 'ROLLBACK';
    const transaction = this.of(runner);
    if (transaction?.kept) transaction.kept = rolledBack ? 'rolled back' : 'committed';
    this.ended(runner);
    if (control === 'commit' && rolledBack) throw new RolledBackAtCommitError();
  }

  /** The word with which PostgreSQL answered COMMIT, which TypeORM only shows to subscribers. */
  noteCommitTag(runner: QueryRunner, answer: unknown): void {
    this.#commitTags.set(runner, (answer as { command?: unknown } | undefined)?.command);
  }

  ended(runner: QueryRunner): void {
    const transaction = this.of(runner);
    if (transaction) transaction.open = false;
    this.#open.delete(runner);
  }

  #begin(runner: QueryRunner, isolation?: Isolation): Transaction {
    const known = this.of(runner);
    if (known) return known;
    const held = unfencedReason() === undefined ? contextLeases() : [];
    const leases = new Set(held.filter((lease) => lease.state.kind !== 'released'));
    // What save() and its like begin for themselves is no more than their statements.
    const pinned = new Set(currentOperation() ? leases : []);
    const transaction = { runner, leases, pinned, isolation, open: true, ...UNHARMED };
    this.#open.set(runner, transaction);
    return transaction;
  }

  #mark(transaction: Transaction): Mark {
    return { transaction, outer: openMark(this.#marks.getStore()) };
  }
}

/** Marks of transactions that have ended mean nothing, and are not kept alive. */
function openMark(mark: Mark | undefined): Mark | undefined {
  let open = mark;
  while (open && !open.transaction.open) open = open.outer;
  return open;
}

function isLate(transaction: Transaction | undefined): boolean {
  return transaction?.kept === 'ending' || transaction?.kept === 'rolled back';
}

/** Errors with which MySQL ends the transaction. PostgreSQL refuses the rest by itself, and SQLite does no such thing. */
const UNDOES_ALL = /^ER_(?:LOCK_DEADLOCK|CHECKREAD)$/;

function doomed(refusal: FencedOutError): FencedOutError {
  return new FencedOutError(
    'A write of this transaction was refused because a newer owner has the lock, so the whole transaction is void. ' +
      'This statement was not sent; roll back.',
    { key: refusal.key, store: refusal.store, cause: refusal },
  );
}
