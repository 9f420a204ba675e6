import type { DataSource, EntityMetadata, EntitySubscriberInterface, QueryRunner } from 'typeorm';

import { LockConfigInvalidError, type Lease, type LockService } from '../../core/index.js';
import { Admission } from './admission.js';
import { CallSites } from './call-sites.js';
import { followBuilders } from './builders.js';
import { copyUpdatedValues } from './copied-values.js';
import { DataSourceFence } from './data-source-fence.js';
import { dialectOf } from '../sql/index.js';
import { fencedEntitiesOf, type UnfencedWrites } from '../entities/index.js';
import { FenceRows, fenceTable } from '../fence/index.js';
import { followManagers } from './followed-managers.js';
import { TokenAcceptance } from '../handed-over/index.js';
import { GuardExpressions } from './guard-expression.js';
import { GuardedValues } from './guarded-values.js';
import { makeWritesKnown } from '../migrations/index.js';
import { RunnerGuard } from './guarded-runner.js';
import { override } from './override.js';
import { noTurns, requireSharedDatabase, SqliteConnection } from '../connection/index.js';
import { Proofs } from './proofs.js';
import { Refusals } from './refusals.js';
import { RowStamps } from './row-stamps.js';
import { StatementGuards } from './statement-guards.js';
import { StatementNet } from './statement-net.js';
import { Transactions } from './transactions.js';
import { unfencedReason } from './unfenced.js';
import { WriteGuard } from './write-guard.js';

export interface GuardOptions {
  /** What becomes of a write to a fenced entity that carries no token. Default `refuse`. */
  readonly unfencedWrites?: UnfencedWrites;
  /**
   * Raise the fence between the grant and the body, so that a late write of the predecessor is refused even before the
   * new owner has written. Default true. With false, the first write under the hold raises it.
   */
  readonly fenceOnAcquire?: boolean;
}

/** What stands between a DataSource and its database. */
export interface DataSourceGuard {
  readonly dataSource: DataSource;
  readonly fence: DataSourceFence;
  readonly rows: FenceRows;
  readonly transactions: Transactions;
  isFenced(metadata: EntityMetadata): boolean;
}

const guards = new WeakMap<DataSource, DataSourceGuard>();
const guardsByLease = new WeakMap<Lease, DataSourceGuard[]>();

/** The guards of the DataSources whose rows the lease protects. */
export function guardsOfLease(lease: Lease): readonly DataSourceGuard[] {
  return guardsByLease.get(lease) ?? [];
}

export function guardOf(dataSource: DataSource): DataSourceGuard | undefined {
  return guards.get(dataSource);
}

/**
 * Guards a DataSource: from now on its database refuses writes to fenced entities that come without the token of their
 * lock, or too late. `DistributedLockTypeOrmModule` does it for the DataSources of Nest; this is for those made at run
 * time. There is no way back: `dataSource.destroy()` also closes the guard's own connection.
 *
 * @throws {LockConfigInvalidError} the DataSource is not initialised, not supported, guarded already, or its entities do
 *   not fit their locks; says what to write
 */
export function guardDataSource(
  dataSource: DataSource,
  locks: LockService,
  options: GuardOptions = {},
): void {
  if (!dataSource.isInitialized) refuse('is not initialised; await dataSource.initialize() first');
  if (guards.has(dataSource)) refuse('is guarded already; guard it once');
  requireSharedDatabase(dataSource);
  const guard = install(dataSource, locks, options);
  guards.set(dataSource, guard);
  const removeFence = locks.addFence(guard.fence);
  const destroy = dataSource.destroy.bind(dataSource);
  override(dataSource, 'destroy', async () => {
    removeFence();
    await guard.fence.close();
    await destroy();
  });
  override(dataSource, 'initialize', () =>
    Promise.reject(
      new LockConfigInvalidError('A guarded DataSource is not initialised again; make a new one.'),
    ),
  );
}

function install(
  dataSource: DataSource,
  locks: LockService,
  { unfencedWrites = 'refuse', fenceOnAcquire: onAcquire = true }: GuardOptions,
): DataSourceGuard {
  const dialect = dialectOf(dataSource);
  const table = fenceTable(dataSource);
  const entities = fencedEntitiesOf(dataSource, unfencedWrites);
  const sqlite = dialect === 'sqlite' ? new SqliteConnection(dataSource) : undefined;
  const transactions = new Transactions(sqlite !== undefined);
  const rows = new FenceRows(dialect, table);
  const onConcern = (lease: Lease): void => void guardsByLease.set(lease, [...guardsOfLease(lease), guard]);
  const fence = new DataSourceFence({
    dataSource,
    locks,
    entities,
    rows,
    acceptance: new TokenAcceptance(dialect, rows),
    transactions,
    onAcquire,
    onConcern,
  });
  const isFenced: DataSourceGuard['isFenced'] = (metadata) =>
    entities.some((entity) => entity.metadata === metadata);
  const guard = { dataSource, fence, rows, transactions, isFenced };
  const proofs = new Proofs(locks);
  const refusals = new Refusals(locks);
  const expressions = new GuardExpressions(dialect, table);
  const values = new GuardedValues();
  const stamps = new RowStamps(expressions, refusals);
  const escape = dataSource.driver.escape.bind(dataSource.driver);
  const statements = new StatementGuards({ dialect, escape, entities, expressions, proofs, refusals });
  const net = new StatementNet(dialect, entities, expressions, statements, refusals, new CallSites());
  const admission = new Admission(fence, transactions);

  for (const entity of entities) {
    values.attach(entity);
    subscribe(
      dataSource,
      new WriteGuard(entity, { proofs, refusals, expressions, values, stamps, admission }),
    );
  }
  subscribe(dataSource, {
    afterQuery: ({ query, queryRunner, rawResults }) => {
      if (query === 'COMMIT') transactions.noteCommitTag(queryRunner, rawResults);
    },
  });
  const tables = entities.map(({ metadata }) => metadata.tableName);
  makeWritesKnown(dataSource, { dialect, tables, isUnfenced: () => unfencedReason() !== undefined });
  followRunners(dataSource, new RunnerGuard({ net, transactions, expressions, statements, proofs, refusals, sqlite }));
  followManagers(dataSource, transactions, sqlite?.turns ?? noTurns);
  followBuilders(dataSource, { ...statements.followers, update: copyUpdatedValues });
  return guard;
}

function subscribe(dataSource: DataSource, subscriber: EntitySubscriberInterface): void {
  dataSource.subscribers.push(subscriber);
}

function followRunners(dataSource: DataSource, guard: RunnerGuard): void {
  const create = dataSource.createQueryRunner.bind(dataSource);
  override(dataSource, 'createQueryRunner', (mode): QueryRunner => guard.guard(create(mode)));
}

function refuse(why: string): never {
  throw new LockConfigInvalidError(`The DataSource ${why}.`);
}
