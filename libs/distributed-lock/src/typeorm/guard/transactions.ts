import { AsyncLocalStorage } from 'node:async_hooks';

import type { QueryRunner } from 'typeorm';

import { contextLeases, FencedOutError, type Lease } from '../../core/index.js';
import { driverCode } from '../sql/index.js';
import { currentOperation } from './operations.js';
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
  /** Whatever is written in its call chain has to be a part of it. */
  keepsAllWrites: boolean;
  /** The refusal after which it must not commit, even if user code swallows it. */
  doom: FencedOutError | undefined;
  /** After this the server has rolled it back by itself, and later statements would commit one by one. */
  undoneBy: Error | undefined;
  /** SQL that puts a setting of the connection back when it has ended. */
  afterwards: string | undefined;
}

export type Isolation = NonNullable<Parameters<QueryRunner['startTransaction']>[0]>;

type Control = 'begin' | 'commit' | 'rollback' | null;

interface Mark {
  readonly transaction: Transaction;
  readonly outer: Mark | undefined;
}

const UNHARMED = { keepsAllWrites: false, doom: undefined, undoneBy: undefined, afterwards: undefined };
const NOWHERE = { transaction: { open: false } as Transaction };

/** PostgreSQL rolled back what was to be committed, because a statement of it had failed. Nothing of it was written. */
export class RolledBackAtCommitError extends Error {
  override readonly name = 'RolledBackAtCommitError';

  constructor() {
    super(
      'PostgreSQL rolled this transaction back at COMMIT, because one of its statements had failed before. ' +
        'Nothing of it was written; do not swallow errors of statements, or wrap these in a transaction of their own.',
    );
  }
}

/** Watches the transactions of one DataSource, statement by statement, so that no way to begin or end one is missed. */
export class Transactions {
  readonly #open = new WeakMap<QueryRunner, Transaction>();
  readonly #marks = new AsyncLocalStorage<Mark>();
  readonly #commitTags = new WeakMap<QueryRunner, unknown>();

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
    if (transaction) transaction.keepsAllWrites = true;
  }

  /** True when a transaction that keeps all writes is open in this call chain, and `runner` is not its. */
  passesBy(runner: QueryRunner): boolean {
    return this.enclosing().some(
      (transaction) => transaction.keepsAllWrites && transaction.runner !== runner,
    );
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
    if (control === 'commit') for (const lease of transaction?.leases ?? []) lease.assertHeld();
    return control;
  }

  /** After a statement was done. @throws {RolledBackAtCommitError} the server says that COMMIT did the opposite */
  afterStatement(runner: QueryRunner, control: Control): void {
    if (control === 'commit' || control === 'rollback') this.ended(runner);
    if (control === 'commit' && this.#commitTags.get(runner) === 'ROLLBACK')
      throw new RolledBackAtCommitError();
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

/** Errors with which MySQL ends the transaction. PostgreSQL refuses the rest by itself, and SQLite does no such thing. */
const UNDOES_ALL = /^ER_(?:LOCK_DEADLOCK|CHECKREAD)$/;

const LEADING = String.raw`^(?:\s|--[^\n]*\n|/\*[\s\S]*?\*/)*`;
const BEGIN = new RegExp(`${LEADING}(?:begin|start\\s+transaction)\\b`, 'i');
const COMMIT = new RegExp(`${LEADING}(?:commit|end)\\b`, 'i');
const ROLLBACK = new RegExp(`${LEADING}(?:rollback|abort)\\b(?!\\s+(?:work\\s+|transaction\\s+)?to\\b)`, 'i');

function controlOf(sql: string): Control {
  if (COMMIT.test(sql)) return 'commit';
  if (BEGIN.test(sql)) return 'begin';
  return ROLLBACK.test(sql) ? 'rollback' : null;
}

function doomed(refusal: FencedOutError): FencedOutError {
  return new FencedOutError(
    'A write of this transaction was refused because a newer owner has the lock, so the whole transaction is void. ' +
      'This statement was not sent; roll back.',
    { key: refusal.key, store: refusal.store, cause: refusal },
  );
}
