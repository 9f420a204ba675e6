import type { EntityManager, ObjectLiteral, Repository } from 'typeorm';

import { LeaseLostError, requireDurationMs } from '../../core/index.js';
import { dialectOf } from '../sql/index.js';
import { affectedRows } from './affected.js';
import { boundedWrite } from './bounded.js';
import { claimColumn, claimProperty, NOW_MS } from './row-claim.js';
import { dataSourceOf } from './rows.js';

type Changes<E extends ObjectLiteral> = Parameters<Repository<E>['update']>[1];

interface Claim {
  readonly ownerId: string;
  readonly token: number;
  readonly ttlMs: number;
  readonly timeoutMs: number;
}

/** A row that `leaseBatch()` has claimed, until its time is over or it is completed. */
export class LeasedRow<E extends ObjectLiteral> {
  readonly #repository: Repository<E>;
  readonly #claim: Claim;

  constructor(
    /** As it was when it was claimed. */
    readonly row: E,
    repository: Repository<E>,
    claim: Claim,
  ) {
    this.#repository = repository;
    this.#claim = claim;
  }

  /** Higher than that of each claim of this row before. For other services that can refuse lower ones. */
  get token(): number {
    return this.#claim.token;
  }

  /**
   * Keeps the row for `ttlMs` from now on; never for less than before. Call it well before the time is over, e.g. after each
   * step of the work. Also works after that, as long as nobody else has taken the row.
   *
   * @throws {LeaseLostError} somebody else has it; stop working on it
   */
  async extend(ttlMs = this.#claim.ttlMs): Promise<void> {
    requireDurationMs('ttlMs', ttlMs, { atLeast: 1 });
    const dataSource = dataSourceOf(this.#repository.manager);
    const before = dataSource.driver.escape(claimColumn(this.#repository, 'untilMs'));
    const now = `${NOW_MS[dialectOf(dataSource)]} + ${Math.ceil(ttlMs)}`;
    // Always another value: a driver that counts changed rows must not take "the same" for "not there".
    const later = `CASE WHEN ${now} > ${before} THEN ${now} ELSE ${before} + 1 END`;
    if (!(await this.#write(this.#repository, { untilMs: () => later }, {}))) throw this.#lost('extended');
  }

  /**
   * Writes `changes` and gives the row back, in one statement, if it is still this claim's: whoever comes late writes nothing.
   * With the manager of a transaction it is a part of that, and undone with it.
   *
   * @throws {LeaseLostError} somebody else has claimed it since; nothing was written
   */
  async complete(changes: Changes<E>, manager?: EntityManager): Promise<void> {
    const repository = manager?.getRepository<E>(this.#repository.target) ?? this.#repository;
    if (!(await this.#write(repository, FREE, changes))) throw this.#lost('completed');
  }

  /** Gives the row back undone, for others to take at once. */
  async release(): Promise<'released' | 'already-gone'> {
    return (await this.#write(this.#repository, FREE, {})) ? 'released' : 'already-gone';
  }

  async #write(repository: Repository<E>, claim: object, changes: Changes<E>): Promise<boolean> {
    const { ownerId, token, timeoutMs } = this.#claim;
    const property = claimProperty(repository);
    const where = { ...repository.metadata.getEntityIdMap(this.row), [property]: { ownerId, token } };
    const result = await boundedWrite(repository, { timeoutMs, caller: 'A claimed row' }, (inner) =>
      inner.update(where as Parameters<typeof inner.update>[0], { ...changes, [property]: claim }),
    );
    return affectedRows(result) === 1;
  }

  #lost(what: string): LeaseLostError {
    return new LeaseLostError(
      `The row of ${this.#repository.metadata.name} was not ${what}: its claim (token ${this.token}) ran out and somebody else ` +
        'has it now, or it is gone. Nothing was written; what was done elsewhere may be done again by the other.',
      { reason: 'taken-over' },
    );
  }
}

const FREE = { ownerId: null, untilMs: 0 };
