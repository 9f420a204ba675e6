import { chownSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createConnection } from 'mysql2/promise';
import { startServer, type Identity, type Place, type TestServer } from './private-server.js';
import { unprivileged } from './unprivileged.js';

const DATABASE = 'app';

/** Speed, at the price of losing data when the machine (not the server) crashes. Otherwise the server's own defaults. */
const SETTINGS = {
  innodb_buffer_pool_size: '32M',
  innodb_log_file_size: '8M',
  innodb_flush_method: 'nosync',
  innodb_doublewrite: '0',
  debug_no_sync: '1', // the files of tables as well, which CREATE, DROP and the start of the server flush
  max_connections: '200',
  character_set_server: 'utf8mb4',
  bind_address: '127.0.0.1',
} as const;

/** What `mariadb-install-db` does, without the texts of HELP, which take most of its time. */
const SYSTEM_TABLES = ['mysql_system_tables.sql', 'mysql_system_tables_data.sql'];

/** A MariaDB server of your own, user `root` without a password, database `app`; `stop()` it when done. */
export function startMariaDb(): Promise<TestServer> {
  const identity = unprivileged('mysql');
  return startServer({
    kind: 'mariadb',
    identity,
    url: (host, port) => `mysql://root@${host}:${port}/${DATABASE}`,
    prepare: (place) => createSystemTables(place, identity),
    command: (place) => ({
      program: 'mariadbd',
      args: [...serverArguments(place), `--port=${place.port}`, '--skip-name-resolve', '--skip-log-bin'],
    }),
    ask: selectOne,
  });
}

async function createSystemTables(place: Place, identity: Identity | undefined): Promise<void> {
  const data = join(place.folder, 'data');
  mkdirSync(data);
  if (identity) for (const folder of [place.folder, data]) chownSync(folder, identity.uid, identity.gid);
  const share = shareFolder(place);
  const scripts = SYSTEM_TABLES.map((name) => readFileSync(join(share, name), 'utf8'));
  const sql = ['CREATE DATABASE mysql;', `CREATE DATABASE ${DATABASE};`, 'USE mysql;', ...scripts];
  await place.run('mariadbd', [...serverArguments(place), '--bootstrap'], `${sql.join('\n')}\n`);
}

/** Everything is named: a fetched server would look for its own files where it was not installed. */
function serverArguments(place: Place): string[] {
  const { folder } = place;
  const share = shareFolder(place);
  const settings = Object.entries(SETTINGS).map(([name, value]) => `--${name}=${value}`);
  return [
    '--no-defaults',
    `--basedir=${dirname(place.binaries.folder)}`,
    `--lc-messages-dir=${share}`,
    `--character-sets-dir=${join(share, 'charsets')}`,
    `--plugin-dir=${folder}`, // none is needed
    `--datadir=${join(folder, 'data')}`,
    `--tmpdir=${folder}`,
    `--socket=${join(folder, 'socket')}`,
    `--pid-file=${join(folder, 'pid')}`,
    ...settings,
  ];
}

function shareFolder({ binaries }: Place): string {
  const candidates = ['mysql', 'mariadb'].map((name) => join(dirname(binaries.folder), 'share', name));
  const found = candidates.find((folder) => existsSync(join(folder, SYSTEM_TABLES[0] as string)));
  if (found) return found;
  throw new Error(`The files of MariaDB are in none of ${candidates.join(', ')}.`);
}

export async function selectOne(host: string, port: number): Promise<void> {
  const connection = await createConnection({ host, port, user: 'root', connectTimeout: 1_000 });
  try {
    await connection.query('SELECT 1');
  } finally {
    connection.destroy();
  }
}
