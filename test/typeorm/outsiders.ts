import { createRequire } from 'node:module';

import { createConnection } from 'mysql2/promise';
import { Client } from 'pg';
import type { DataSource } from 'typeorm';

/** A program that knows nothing of TypeORM or of locks: a bare driver on the database of `dataSource`. */
export interface Outsider {
  run(sql: string): Promise<unknown>;
  stop(): Promise<void>;
}

interface SqliteHandle {
  exec(sql: string): unknown;
  close(): void;
}

export async function outsiderOf({ options }: DataSource): Promise<Outsider> {
  if (options.type === 'postgres') return postgresOutsider(options.url as string);
  if ('url' in options) return mySqlOutsider(options.url as string);
  return sqliteOutsider(options.database as string);
}

async function postgresOutsider(url: string): Promise<Outsider> {
  const client = new Client({ connectionString: url });
  await client.connect();
  return { run: (sql) => client.query(sql), stop: () => client.end() };
}

async function mySqlOutsider(uri: string): Promise<Outsider> {
  const connection = await createConnection({ uri });
  return { run: (sql) => connection.query(sql.replaceAll('"', '`')), stop: () => connection.end() };
}

async function sqliteOutsider(file: string): Promise<Outsider> {
  const Database = createRequire(__filename)('libsql') as new (file: string) => SqliteHandle;
  const handle = new Database(file);
  handle.exec('PRAGMA busy_timeout = 5000');
  return { run: async (sql) => handle.exec(sql), stop: async () => handle.close() };
}
