import type { DataSource, QueryRunner } from 'typeorm';

import {
  FencedOutError,
  hasCode,
  LockConfigInvalidError,
  LockInsideTransactionError,
  matchKey,
  type Fence,
  type Lease,
  type LockService,
  type TokenInQuestion,
} from '../../core/index.js';
import type { FencedEntity } from '../entities/index.js';
import type { FenceRows } from '../fence/index.js';
import type { TokenAcceptance } from '../handed-over/index.js';
import { inOwnSession, openOwnConnection } from '../connection/index.js';
import { driverCode, retryTransient } from '../sql/index.js';
import type { SelfTest } from './self-test.js';
import type { Transactions } from './transactions.js';

/** A burst of locks in one process raises this many fences at a time. */
const POOL_SIZE = 4;

type KeyInQuestion = Parameters<Fence['beforeAcquire']>[0];

export interface DataSourceFenceParts {
  readonly dataSource: DataSource;
  readonly locks: LockService;
  readonly entities: readonly FencedEntity[];
  readonly rows: FenceRows;
  readonly acceptance: TokenAcceptance;
  readonly transactions: Transactions;
  readonly selfTest: SelfTest;
  /** False: raised by the first write under the hold instead. */
  readonly onAcquire: boolean;
  /** Told of each lease that protects rows of this DataSource. */
  readonly onConcern: (lease: Lease) => void;
}

/** The fence of one DataSource, as the lock service sees it. */
export class DataSourceFence implements Fence {
  readonly #raised = new WeakSet<Lease>();
  #own: Promise<DataSource> | undefined;
  #closed = false;

  constructor(private readonly parts: DataSourceFenceParts) {}

  /** True when rows of this DataSource are protected by the key. */
  concerns(key: string): boolean {
    return this.parts.entities.some(({ template }) => matchKey(template, key) !== null);
  }

  beforeAcquire({ key, store }: KeyInQuestion): void {
    if (!this.parts.transactions.current() || !this.concerns(key)) return;
    throw new LockInsideTransactionError(
      `Lock "${key}" was asked for inside an open transaction of the database that it protects, whose snapshot may be older ` +
        'than the lock. Nothing was taken. Lock first, then begin: put @Locked above @Transactional, or withLock() ' +
        'around transaction().',
      { key, store },
    );
  }

  requireOutside(key: string): void {
    if (!this.parts.transactions.current()) return;
    throw new LockInsideTransactionError(
      `"${key}" is idempotent, and was called inside an open transaction: when that is rolled back, the effects are gone and ` +
        'the record says that they are there. Nothing was claimed. Put @Idempotent above @Transactional; what does not ' +
        'belong to the transaction is called before or after it.',
      { key },
    );
  }

  async raise(lease: Lease, timeoutMs: number): Promise<void> {
    if (!this.concerns(lease.key)) return;
    this.parts.onConcern(lease);
    await this.#prove(lease);
    if (!this.parts.onAcquire) return;
    const { rows } = this.parts;
    const raised = await this.#ask(lease, timeoutMs, (session, remainingMs) =>
      rows.raiseWithin(session, lease, remainingMs),
    );
    if (!raised) throw await this.#ask(lease, timeoutMs, (session) => this.#refusal(session, lease));
    this.#raised.add(lease);
    this.#tellRaised(lease);
  }

  async accept(token: TokenInQuestion, timeoutMs: number): Promise<void> {
    if (!this.concerns(token.key)) return;
    const { acceptance, locks } = this.parts;
    await this.#prove(token);
    try {
      const answer = await this.#ask(token, timeoutMs, (session, remainingMs) =>
        acceptance.accept(session, token, remainingMs),
      );
      if (answer === 'raised') this.#tellRaised(this.#subjectOf(token));
    } catch (error) {
      if (hasCode(error, 'FENCED_OUT')) {
        locks.events.emit({ type: 'stale-write-refused', ...this.#subjectOf(token) });
      }
      throw error;
    }
  }

  /**
   * Makes sure, through the runner that is about to write, that the fence knows the lease: for one that was taken before
   * this DataSource was guarded, or without `fenceOnAcquire`.
   *
   * @throws {FencedOutError} a newer owner is there
   */
  async raiseLate(runner: QueryRunner, lease: Lease): Promise<void> {
    if (!(await this.parts.rows.raise(runner, lease))) {
      const refusal = await this.#refusal(runner, lease);
      this.parts.transactions.doom(runner, refusal);
      throw refusal;
    }
    if (this.parts.transactions.of(runner)) return; // a rollback would take it back
    this.#raised.add(lease);
    this.#tellRaised(lease);
  }

  /**
   * The self-test, as far as the tables are there yet: the application may create them later in its start.
   *
   * @throws {LockConfigInvalidError} the database does not refuse stale writes
   */
  async proveAtBoot(): Promise<void> {
    await this.parts.selfTest.passed().catch((error: unknown) => {
      if (!isMissingTable(error)) throw error; // else the first lock will say what to call
    });
  }

  isRaised(lease: Lease): boolean {
    return this.#raised.has(lease);
  }

  /** Closes the connection of its own. Twice is harmless. */
  async close(): Promise<void> {
    this.#closed = true;
    const own = await this.#own?.catch(() => undefined); // it never opened
    this.#own = undefined;
    if (own?.isInitialized) await own.destroy();
  }

  /** Before the first token is believed: nothing can be awaited where a DataSource is guarded. */
  #prove(about: KeyInQuestion): Promise<void> {
    return this.parts.selfTest.passed().catch((error: unknown) => {
      throw isMissingTable(error) ? tableMissing(about, error) : error;
    });
  }

  /** Within the time that is left, on a connection of the fence's own. */
  async #ask<T>(
    about: KeyInQuestion,
    timeoutMs: number,
    question: (session: QueryRunner, remainingMs: number) => Promise<T>,
  ): Promise<T> {
    const endsAtMs = performance.now() + timeoutMs;
    const remainingMs = (): number => endsAtMs - performance.now();
    const own = await this.#connection();
    return retryTransient(timeoutMs, () =>
      inOwnSession(own, remainingMs(), (session) => question(session, remainingMs())),
    ).catch((error: unknown) => {
      throw isMissingTable(error) ? tableMissing(about, error) : error;
    });
  }

  /** Opened at the first use, and again when that failed. */
  #connection(): Promise<DataSource> {
    if (this.#closed) return Promise.reject(new Error('the DataSource of this fence has been closed'));
    this.#own ??= openOwnConnection(this.parts.dataSource, { poolSize: POOL_SIZE }).catch(
      (error: unknown) => {
        this.#own = undefined;
        throw error;
      },
    );
    return this.#own;
  }

  async #refusal(runner: QueryRunner, lease: Lease): Promise<FencedOutError> {
    const { key, store, storeId, token } = lease;
    const row = await this.parts.rows.read(runner, lease.qualifiedKey);
    const why =
      row && row.storeId !== storeId
        ? `its fence was raised by the lock store "${row.storeId}", and this hold is from "${storeId}". Tokens of two stores ` +
          'do not compare: a fence is handed over to another store on purpose, not by the way'
        : `a newer owner${row ? ` (token ${row.token})` : ''} is there, and this hold has token ${token}`;
    return new FencedOutError(`Lock "${key}" is not good for writing: ${why}. Nothing was written.`, {
      key,
      store,
    });
  }

  #subjectOf({ key, store, token }: TokenInQuestion) {
    const [entity] = this.parts.entities.filter(({ template }) => matchKey(template, key));
    return { key, store, token, template: entity?.template.text ?? key, entity: entity?.name ?? '' };
  }

  #tellRaised({ key, template, store, token }: Pick<Lease, 'key' | 'template' | 'store' | 'token'>): void {
    this.parts.locks.events.emit({ type: 'fence-raised', key, template, store, token });
  }
}

function isMissingTable(error: unknown): boolean {
  return /^(?:42P01|ER_NO_SUCH_TABLE)$/.test(driverCode(error)) || /no such table/.test(String(error));
}

function tableMissing({ key, store }: KeyInQuestion, cause: unknown): LockConfigInvalidError {
  return new LockConfigInvalidError(
    `The fence of "${key}" could not be asked: this database has no table lock_fence. The work did not start, and a lock ` +
      'taken for it was given back. Call createLockTables(dataSource) once, for example in a migration.',
    { key, store, cause },
  );
}
