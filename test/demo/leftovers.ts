import { createConnection } from 'mysql2/promise';
import { Client } from 'pg';

/** Schemas of runs in a PostgreSQL database, and whatever is in its public one. */
export async function leftInPostgres(url: string): Promise<readonly unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(
    `SELECT nspname FROM pg_namespace WHERE nspname LIKE 'demo%'
     UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace`,
  );
  await client.end();
  return rows;
}

/** Databases of runs on a MariaDB or MySQL server, and whatever is in the one of the url. */
export async function leftInMySql(url: string): Promise<readonly unknown[]> {
  const connection = await createConnection(url);
  const [rows] = await connection.query(
    `SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'demo%'
     UNION ALL SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()`,
  );
  await connection.end();
  return rows as unknown[];
}
