import { Raw, type ObjectLiteral, type Repository } from 'typeorm';

import { newOwnerId, requireDurationMs } from '../../core/index.js';
import { dialectOf } from '../sql/index.js';
import { affectedRows } from './affected.js';
import { boundedWrite, timeoutOf } from './bounded.js';
import { freeRows, requireLimit, type BatchChoice } from './claim-batch.js';
import { LeasedRow } from './leased-row.js';
import { claimProperty, NOW_MS, type RowClaim } from './row-claim.js';
import { dataSourceOf, repositoryOf, type DataSourceChoice, type RowsOf } from './rows.js';

export interface LeaseBatchOptions<E extends ObjectLiteral> extends BatchChoice<E>, DataSourceChoice {
  /** How long the rows are kept if this process dies, in milliseconds; see `LeasedRow.extend()`. */
  readonly ttlMs: number;
}

/**
 * Claims rows for work that takes longer than a transaction: no two callers have the same row at the same time, as long as
 * each completes or extends in time. Nobody waits, and no connection is kept. When the claimer dies, others get its rows
 * once `ttlMs` are over by the database's clock, and then the late claimer can neither extend nor complete.
 *
 * The entity needs the columns of {@link RowClaim}. Works on SQLite too. It does not promise that an item is begun once only:
 * effects outside this database need the row's `token` or an idempotency key. A claim is not renewed by itself. On a
 * fenced entity it needs the locks of the rows, and then it is superfluous: leave `@FencedBy` away from such a table.
 *
 * @returns the claimed rows, at most `limit`; none when there is nothing to do
 * @throws {LockConfigInvalidError} an option makes no sense, the entity has no `RowClaim`, or it is not clear which
 *   DataSource is meant
 */
export async function leaseBatch<E extends ObjectLiteral>(
  rows: RowsOf<E>,
  options: LeaseBatchOptions<E>,
): Promise<LeasedRow<E>[]> {
  const repository = repositoryOf(rows, options, 'leaseBatch()');
  const { ttlMs, limit } = options;
  const timeoutMs = timeoutOf(options);
  requireLimit(limit);
  requireDurationMs('ttlMs', ttlMs, { atLeast: 1 });
  const batch = new Batch(repository, options);
  const claimed = await boundedWrite(repository, { timeoutMs, caller: 'leaseBatch()' }, (inner) =>
    batch.claimIn(inner),
  );
  return claimed.map((row) => {
    const { token } = batch.claimOf(row);
    return new LeasedRow(row, repository, { ownerId: batch.ownerId, token, ttlMs, timeoutMs });
  });
}

/** One attempt to claim rows. */
class Batch<E extends ObjectLiteral> {
  readonly ownerId = newOwnerId();
  readonly #property: string;
  readonly #nowMs: string;
  readonly #free: BatchChoice<E>;
  readonly #isFree: object;
  readonly #hasRowLocks: boolean;

  constructor(
    repository: Repository<E>,
    private readonly options: LeaseBatchOptions<E>,
  ) {
    const dialect = dialectOf(dataSourceOf(repository.manager));
    this.#property = claimProperty(repository);
    this.#nowMs = NOW_MS[dialect];
    this.#hasRowLocks = dialect !== 'sqlite';
    this.#isFree = { untilMs: Raw((column) => `${column} <= ${this.#nowMs}`) };
    this.#free = { ...options, where: { ...options.where, [this.#property]: this.#isFree } };
  }

  claimOf(row: E): RowClaim {
    return row[this.#property] as RowClaim;
  }

  async claimIn(repository: Repository<E>): Promise<E[]> {
    const { where, order, limit } = this.#free;
    const free = this.#hasRowLocks
      ? await freeRows(repository, this.#free)
      : await repository.find({ where, order, take: limit, loadEagerRelations: false });
    const claimed: E[] = [];
    for (const row of free) if (await this.#take(repository, row)) claimed.push(row);
    return claimed;
  }

  /** Only as it was read, and still free: on SQLite another process may have been faster, and even be through. */
  async #take(repository: Repository<E>, row: E): Promise<boolean> {
    const { ownerId } = this;
    const seen = this.claimOf(row);
    const where = {
      ...this.#free.where,
      ...repository.metadata.getEntityIdMap(row),
      [this.#property]: { ...this.#isFree, token: seen.token },
    };
    const token = seen.token + 1;
    const untilMs = (): string => `${this.#nowMs} + ${Math.ceil(this.options.ttlMs)}`;
    const changes = { [this.#property]: { ownerId, token, untilMs } };
    const result = await repository.update(
      where,
      changes as unknown as Parameters<typeof repository.update>[1],
    );
    Object.assign(seen, { ownerId, token });
    return affectedRows(result) === 1;
  }
}
