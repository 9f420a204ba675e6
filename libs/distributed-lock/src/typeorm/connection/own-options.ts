import type { Socket } from 'node:net';

import type { DataSourceOptions } from 'typeorm';

export type OptionsOf<Type extends DataSourceOptions['type']> = Extract<
  DataSourceOptions,
  { readonly type: Type }
>;
type BaseOptions = Pick<
  OptionsOf<'postgres'>,
  keyof OptionsOf<'postgres'> & keyof OptionsOf<'better-sqlite3'> & keyof OptionsOf<'mysql' | 'mariadb'>
>;

/** Also the longest wait for a free connection; the longest time-out of the core is the same. */
export const CONNECT_TIMEOUT_MS = 5_000;
/** Backstop for queries outside `inOwnSession()`. */
export const QUERY_TIMEOUT_MS = 10_000;
/** A server that is gone never answers the goodbye; without a limit its sockets would keep the process alive. */
const GOODBYE_MS = 500;

/** The user's own content stays out: this connection sees tables, not entities, and changes no schema. */
export const BARE: Partial<Omit<BaseOptions, 'type' | 'poolSize'>> = {
  entities: [],
  subscribers: [],
  migrations: [],
  synchronize: false,
  migrationsRun: false,
  dropSchema: false,
  logging: false,
  logger: undefined,
  cache: false,
  maxQueryExecutionTime: undefined,
};

/** A socket that is torn down when the server does not answer the goodbye. */
export function mortal(socket: Socket): Socket {
  return socket.once('finish', () => setTimeout(() => socket.destroy(), GOODBYE_MS).unref());
}
