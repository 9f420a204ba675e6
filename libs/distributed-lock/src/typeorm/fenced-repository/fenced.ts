import type { DataSource, ObjectLiteral, Repository } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { guardOf, runFencedCall } from '../guard/index.js';

/** The statements of a repository that TypeORM writes from criteria or values alone, with guards in them. */
export type FencedRepository<Entity extends ObjectLiteral> = Pick<
  Repository<Entity>,
  'delete' | 'softDelete' | 'restore' | 'upsert'
>;

/**
 * `fenced(invoices).delete(…)`, `softDelete`, `restore` and `upsert`: as the methods of the repository itself, which are
 * refused on fenced entities because hooks cannot guard them. These put the guard into TypeORM's statement.
 *
 * Each takes what the method of the repository takes, sends one statement, and returns what it returns. All rows that it
 * reaches must be protected by locks held here; at the first one that is not, or whose owner is newer, the database fails
 * the whole statement, and none of them is changed. `upsert` inserts and updates rows of held locks only: a row that
 * another owner has removed does not come back, and a conflict with a row of another lock is refused. It raises a
 * `@VersionColumn()`, as `save()` does.
 *
 * Works inside transactions: `fenced(manager.getRepository(Invoice))`. Runs subscribers, and neither cascades nor listeners
 * of entities, as TypeORM does. There is no `clear()`, which would take the rows of all locks.
 *
 * The methods reject with
 * - `FENCED_OUT` when a newer owner has a lock, or the statement reaches a row that no lock held here protects;
 * - `UNFENCED_WRITE` when no lock is held that protects rows of the entity; nothing was sent;
 * - `LOCK_CONFIG_INVALID` when the entity is not fenced, or its DataSource has no guards; nothing was sent.
 */
export function fenced<Entity extends ObjectLiteral>(
  repository: Repository<Entity>,
): FencedRepository<Entity> {
  return {
    delete: (...args) => guarded(repository, 'delete', () => repository.delete(...args)),
    softDelete: (...args) => guarded(repository, 'softDelete', () => repository.softDelete(...args)),
    restore: (...args) => guarded(repository, 'restore', () => repository.restore(...args)),
    upsert: (...args) => guarded(repository, 'upsert', () => repository.upsert(...args)),
  };
}

/** Asked at each call: a service may wrap its repositories before the guards are there. */
async function guarded<T>(
  repository: Repository<ObjectLiteral>,
  method: keyof FencedRepository<ObjectLiteral>,
  work: () => Promise<T>,
): Promise<T> {
  const path = `fenced(repository).${method}()`;
  const { manager, metadata } = repository;
  // TypeORM 0.3 calls it `connection`.
  const { dataSource, connection } = manager as { dataSource?: DataSource; connection?: DataSource };
  const guard = guardOf((dataSource ?? connection) as DataSource);
  if (!guard)
    refuse(path, 'its DataSource has no guards; see DistributedLockTypeOrmModule and guardDataSource()');
  if (!guard.entityOf(metadata)) {
    refuse(
      path,
      `${metadata.name} is not fenced; write @FencedBy('…:<id>') above it, or use the repository itself`,
    );
  }
  return runFencedCall({ path }, work);
}

function refuse(path: string, why: string): never {
  throw new LockConfigInvalidError(`${path} cannot be guarded: ${why}. Nothing was sent.`);
}
