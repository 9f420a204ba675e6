import type { DataSource, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm';

import { contextLeases, LockConfigInvalidError, LockNotHeldError, type Lease } from '../../core/index.js';
import { guardOf, guardsOfLease, type DataSourceGuard } from '../guard/index.js';

export interface ReadAndFenceOptions {
  /** Default: the guarded DataSource that has the entity, among those whose rows the locks held here protect. */
  readonly dataSource?: DataSource;
}

/**
 * Reads a row and writes the token of its lock onto it, in one step: `await readAndFence(Invoice, id)`. What it returns is
 * the row as no predecessor can change it any more, and as a newer owner has not changed it yet; null when there is none.
 *
 * `id` is the value of the primary column, or an object with all of them. The entity comes as from `findOne()`, with eager
 * relations and without soft-deleted rows; versions and update dates do not move. One statement on PostgreSQL; elsewhere two
 * in one transaction. Inside a transaction of the same DataSource it is a part of that one.
 *
 * @throws {FencedOutError} a newer owner has the lock, or the row is under another one
 * @throws {LeaseLostError | LeaseUncertainError | LockNotHeldError} the lock is over or in doubt, or none is held here;
 *   nothing was read
 * @throws {UnfencedWriteError} what is held here does not protect rows of the entity; nothing was read
 * @throws {LockConfigInvalidError} the entity is not fenced, or not of one guarded DataSource, or the id is not complete;
 *   nothing was read
 */
export async function readAndFence<Entity extends ObjectLiteral>(
  target: EntityTarget<Entity>,
  id: string | number | bigint | Date | Partial<Entity>,
  { dataSource }: ReadAndFenceOptions = {},
): Promise<Entity | null> {
  const guard = dataSource ? guardGiven(dataSource) : guardMeant(target);
  const entity = guard.dataSource.hasMetadata(target)
    ? guard.entityOf(guard.dataSource.getMetadata(target))
    : undefined;
  if (!entity) refuse('the entity is not fenced there');
  const manager: EntityManager = guard.transactions.current()?.runner.manager ?? guard.dataSource.manager;
  return (await guard.reads.read(entity, id, manager)) as Entity | null;
}

function guardGiven(dataSource: DataSource): DataSourceGuard {
  return guardOf(dataSource) ?? refuse('its DataSource has no guards; see guardDataSource()');
}

/** @throws {LockNotHeldError} nothing is held here */
function guardMeant(target: EntityTarget<ObjectLiteral>): DataSourceGuard {
  const { key } = requireAnyLease();
  const guards = contextLeases()
    .flatMap(guardsOfLease)
    .filter(({ dataSource }) => dataSource.hasMetadata(target));
  const [guard, another] = new Set(guards);
  if (!guard) refuse(`"${key}", held here, protects no rows of a guarded DataSource that has this entity`);
  if (another) refuse('several DataSources have this entity; write { dataSource }');
  return guard;
}

function requireAnyLease(): Lease {
  const [lease] = contextLeases();
  if (lease) return lease;
  throw new LockNotHeldError(
    'readAndFence() fences a row by a lock, and none is held here. Nothing was read; call it inside a @Locked method or ' +
      'withLock(), or read with findOneBy().',
    { outcome: 'not-started' },
  );
}

function refuse(why: string): never {
  throw new LockConfigInvalidError(`readAndFence() does not know where to read: ${why}. Nothing was read.`);
}
