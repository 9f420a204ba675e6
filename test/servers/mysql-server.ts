import { chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { selectOne } from './mariadb-server.js';
import { startServer, type Identity, type Place, type TestServer } from './private-server.js';
import { unprivileged } from './unprivileged.js';

const DATABASE = 'app';

/** Speed, at the price of losing data when the machine (not the server) crashes. Otherwise the server's own defaults. */
const SETTINGS = {
  innodb_buffer_pool_size: '32M',
  innodb_redo_log_capacity: '32M',
  innodb_flush_method: 'nosync',
  innodb_doublewrite: '0',
  performance_schema: '0',
  mysqlx: '0',
  max_connections: '200',
  secure_file_priv: 'NULL',
  bind_address: '127.0.0.1',
} as const;

/** It is reached by address, and no names are looked up; a new server knows `localhost` only. */
const FIRST_STATEMENTS = [
  "CREATE USER root@'%' IDENTIFIED BY '';",
  "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;",
  `CREATE DATABASE ${DATABASE};`,
];

/** A MySQL server of your own, user `root` without a password, database `app`; `stop()` it when done. */
export function startMySql(): Promise<TestServer> {
  const identity = unprivileged('mysql');
  return startServer({
    kind: 'mysql',
    identity,
    url: (host, port) => `mysql://root@${host}:${port}/${DATABASE}`,
    prepare: (place) => createSystemTables(place, identity),
    command: (place) => ({
      program: 'mysqld',
      args: [...serverArguments(place), `--port=${place.port}`, '--skip-name-resolve', '--skip-log-bin'],
    }),
    ask: selectOne,
  });
}

async function createSystemTables(place: Place, identity: Identity | undefined): Promise<void> {
  const data = join(place.folder, 'data');
  mkdirSync(data);
  if (identity) for (const folder of [place.folder, data]) chownSync(folder, identity.uid, identity.gid);
  const first = join(place.folder, 'first.sql');
  writeFileSync(first, FIRST_STATEMENTS.join('\n'));
  await place.run('mysqld', [...serverArguments(place), '--initialize-insecure', `--init-file=${first}`]);
}

/** Everything is named: a fetched server would look for its own files where it was not installed. */
function serverArguments({ folder, binaries }: Place): string[] {
  const base = dirname(binaries.folder);
  const share = join(base, 'share', 'mysql');
  const settings = Object.entries(SETTINGS).map(([name, value]) => `--${name}=${value}`);
  return [
    '--no-defaults',
    `--basedir=${base}`,
    `--lc-messages-dir=${share}`,
    `--character-sets-dir=${join(share, 'charsets')}`,
    `--plugin-dir=${join(base, 'lib', 'mysql', 'plugin')}`,
    `--datadir=${join(folder, 'data')}`,
    `--tmpdir=${folder}`,
    `--socket=${join(folder, 'socket')}`,
    `--pid-file=${join(folder, 'pid')}`,
    ...settings,
  ];
}
