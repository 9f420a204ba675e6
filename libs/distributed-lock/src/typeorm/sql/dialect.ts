import { LockConfigInvalidError } from '../../core/index.js';

/** The databases whose SQL this package speaks; `mysql` stands for MariaDB as well. */
export type Dialect = 'postgres' | 'sqlite' | 'mysql';

const DIALECTS: Readonly<Record<string, Dialect>> = {
  postgres: 'postgres',
  'better-sqlite3': 'sqlite',
  mysql: 'mysql',
  mariadb: 'mysql',
};

/**
 * The dialect of a DataSource.
 *
 * @throws {LockConfigInvalidError} its type is none that is supported; names the type and those that are
 */
export function dialectOf({ options }: { readonly options: { readonly type: string } }): Dialect {
  const dialect = DIALECTS[options.type];
  if (dialect) return dialect;
  const why =
    options.type === 'sqljs'
      ? 'keeps its database in the memory of one connection, so locks on a second one would see another database; ' +
        'use a file with type "better-sqlite3"'
      : 'is not supported; use one of type "postgres", "mysql", "mariadb" or "better-sqlite3"';
  throw new LockConfigInvalidError(`A DataSource of type "${options.type}" ${why}.`);
}
