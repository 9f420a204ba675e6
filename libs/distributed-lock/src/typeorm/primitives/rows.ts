import type { DataSource, EntityManager, EntityTarget, ObjectLiteral, Repository } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { guardedDataSources, guardOf } from '../guard/index.js';

/**
 * An entity, or a repository of it. A repository says which database is meant, and which transaction the work is a part of;
 * with an entity alone it is the guarded DataSource that has it, and the transaction that is open in this call chain.
 */
export type RowsOf<E extends ObjectLiteral> = EntityTarget<E> | Repository<E>;

export interface DataSourceChoice {
  /** Where an entity is given and no repository. Default: the guarded DataSource that has the entity. */
  readonly dataSource?: DataSource;
}

/**
 * The repository that is meant, inside the transaction that is open here, if there is one.
 *
 * @throws {LockConfigInvalidError} it is not clear which DataSource is meant
 */
export function repositoryOf<E extends ObjectLiteral>(
  rows: RowsOf<E>,
  { dataSource }: DataSourceChoice,
  caller: string,
): Repository<E> {
  const given = isRepository(rows) ? rows : (dataSource ?? dataSourceWith(rows, caller)).getRepository(rows);
  if (given.manager.queryRunner) return given;
  const open = guardOf(dataSourceOf(given.manager))?.transactions.current();
  return open ? open.runner.manager.getRepository(given.target) : given;
}

/** TypeORM 0.3 knows it as `connection`. */
export function dataSourceOf(manager: EntityManager): DataSource {
  const { dataSource, connection } = manager as { dataSource?: DataSource; connection?: DataSource };
  return (dataSource ?? connection) as DataSource;
}

/**
 * The DataSource that is meant where none is named.
 *
 * @throws {LockConfigInvalidError} there is none, or more than one
 */
export function onlyDataSource(
  caller: string,
  hasWhatIsNeeded: (dataSource: DataSource) => boolean,
): DataSource {
  const [one, another] = guardedDataSources().filter(hasWhatIsNeeded);
  if (one && !another) return one;
  throw new LockConfigInvalidError(
    `${caller} cannot choose its DataSource: ${one ? 'several guarded ones fit' : 'no guarded one fits'}. ` +
      'Nothing was done; write { dataSource }, or give a repository in place of the entity.',
  );
}

function dataSourceWith(entity: EntityTarget<ObjectLiteral>, caller: string): DataSource {
  return onlyDataSource(caller, (dataSource) => dataSource.hasMetadata(entity));
}

function isRepository<E extends ObjectLiteral>(rows: RowsOf<E>): rows is Repository<E> {
  return typeof rows === 'object' && 'manager' in rows && 'metadata' in rows;
}
