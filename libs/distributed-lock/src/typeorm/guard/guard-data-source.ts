import type { DataSource, EntityMetadata, EntitySubscriberInterface, QueryRunner } from 'typeorm';

import { LockConfigInvalidError, type Lease, type LockService } from '../../core/index.js';
import { followBuilders } from './builders.js';
import { copyUpdatedValues } from './copied-values.js';
import { DataSourceFence } from './data-source-fence.js';
import { dialectOf } from '../sql/index.js';
import { fencedEntitiesOf, type FencedEntity, type UnfencedWrites } from '../entities/index.js';
import type { FencePins } from './fence-pins.js';
import type { FencedReads } from './fenced-reads.js';
import { FenceRows, fenceTable } from '../fence/index.js';
import { followManagers } from './followed-managers.js';
import { guardParts } from './guard-parts.js';
import { TokenAcceptance } from '../handed-over/index.js';
import { makeWritesKnown } from '../migrations/index.js';
import { RunnerGuard } from './guarded-runner.js';
import { override } from './override.js';
import {
  noTurns,
  requirePrimaryReads,
  requireSharedDatabase,
  SqliteConnection,
} from '../connection/index.js';
import { SelfTest } from './self-test.js';
import { Transactions } from './transactions.js';
import { unfencedReason } from './unfenced.js';

export interface GuardOptions {
  /** What becomes of a write to a fenced entity that carries no token. Default `refuse`. */
  readonly unfencedWrites?: UnfencedWrites;
  /**
   * Raise the fence between the grant and the body, so that a late write of the predecessor is refused even before the
   * new owner has written. Default true. With false, the first write under the hold raises it.
   */
  readonly fenceOnAcquire?: boolean;
  /**
   * Whether a DataSource with replication may read from its replicas without being asked to, also under a lock. Default
   * `refuse`: with fenced entities it needs `defaultMode: 'master'`. Writes, guards and fences go to the primary anyhow.
   */
  readonly replicaReads?: 'refuse' | 'allow';
}

/** What stands between a DataSource and its database. */
export interface DataSourceGuard {
  readonly dataSource: DataSource;
  readonly fence: DataSourceFence;
  readonly pins: FencePins;
  readonly transactions: Transactions;
  readonly selfTest: SelfTest;
  readonly reads: FencedReads;
  /** Undefined for one that is not fenced. */
  entityOf(metadata: EntityMetadata): FencedEntity | undefined;
}

const guards = new WeakMap<DataSource, DataSourceGuard>();
/** Until they are destroyed. */
const guardedNow = new Set<DataSource>();
const guardsByLease = new WeakMap<Lease, DataSourceGuard[]>();

/** The guards of the DataSources whose rows the lease protects. */
export function guardsOfLease(lease: Lease): readonly DataSourceGuard[] {
  return guardsByLease.get(lease) ?? [];
}

export function guardedDataSources(): readonly DataSource[] {
  return [...guardedNow];
}

export function guardOf(dataSource: DataSource): DataSourceGuard | undefined {
  return guards.get(dataSource);
}

/**
 * Guards a DataSource: from now on its database refuses writes to fenced entities that come without the token of their
 * lock, or too late. `DistributedLockTypeOrmModule` does it for the DataSources of Nest; this is for those made at run
 * time. There is no way back: `dataSource.destroy()` also closes the guard's own connection.
 *
 * Before the first lock is given out that protects rows of it (under Nest: at boot), the database has to refuse a stale
 * write, in a transaction that is rolled back; otherwise that lock is refused with LOCK_CONFIG_INVALID.
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
  guardedNow.add(dataSource);
  const removeFence = locks.fences.add(guard.fence);
  const destroy = dataSource.destroy.bind(dataSource);
  override(dataSource, 'destroy', async () => {
    removeFence();
    guardedNow.delete(dataSource);
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
  { unfencedWrites = 'refuse', fenceOnAcquire: onAcquire = true, replicaReads = 'refuse' }: GuardOptions,
): DataSourceGuard {
  const dialect = dialectOf(dataSource);
  const entities = fencedEntitiesOf(dataSource, unfencedWrites);
  if (entities.length > 0 && replicaReads === 'refuse') requirePrimaryReads(dataSource);
  const sqlite = dialect === 'sqlite' ? new SqliteConnection(dataSource) : undefined;
  const transactions = new Transactions(sqlite !== undefined);
  const table = fenceTable(dataSource);
  const rows = new FenceRows(dialect, table);
  const selfTest = new SelfTest({ dataSource, dialect, entities, rows, fenceTable: table });
  const onConcern = (lease: Lease): void => void guardsByLease.set(lease, [...guardsOfLease(lease), guard]);
  const fence = new DataSourceFence({
    dataSource,
    locks,
    entities,
    rows,
    acceptance: new TokenAcceptance(dialect, rows),
    transactions,
    selfTest,
    onAcquire,
    onConcern,
  });
  const parts = guardParts({ dataSource, dialect, locks, entities, fence, rows, transactions });
  const { entityOf, pins, reads, statements, junctionGuard } = parts;
  const guard = { dataSource, fence, pins, transactions, reads, selfTest, entityOf };

  for (const subscriber of [...parts.writeGuards, junctionGuard]) subscribe(dataSource, subscriber);
  subscribe(dataSource, {
    afterQuery: ({ query, queryRunner, rawResults }) => {
      if (query === 'COMMIT') transactions.noteCommitTag(queryRunner, rawResults);
    },
  });
  const tables = entities.map(({ metadata }) => metadata.tableName);
  makeWritesKnown(dataSource, { dialect, tables, isUnfenced: () => unfencedReason() !== undefined });
  followRunners(dataSource, new RunnerGuard({ ...parts, transactions, sqlite }));
  followManagers(dataSource, transactions, parts.unchangedSaves, sqlite?.turns ?? noTurns);
  followBuilders(dataSource, {
    ...statements.followers,
    insert: (builder) => {
      statements.followers.insert(builder);
      junctionGuard.follow(builder);
    },
    update: copyUpdatedValues(entityOf),
  });
  return guard;
}

function subscribe(dataSource: DataSource, subscriber: EntitySubscriberInterface): void {
  dataSource.subscribers.push(subscriber);
}

/** The driver makes all of them, also for those who do not ask the DataSource. */
function followRunners({ driver }: DataSource, guard: RunnerGuard): void {
  const create = driver.createQueryRunner.bind(driver);
  override(driver, 'createQueryRunner', (mode): QueryRunner => guard.guard(create(mode)));
}

function refuse(why: string): never {
  throw new LockConfigInvalidError(`The DataSource ${why}.`);
}
