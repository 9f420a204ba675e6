import { chownSync, realpathSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { Client } from 'pg';
import { startServer, type Identity, type Place, type TestServer } from './private-server.js';
import { unprivileged } from './unprivileged.js';

export type PostgresServer = TestServer;

/** Speed, at the price of losing data when the machine (not the server) crashes; files rather than shared memory that outlives us. */
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
  shared_buffers: '32MB',
  fsync: 'off',
  full_page_writes: 'off',
  dynamic_shared_memory_type: 'mmap',
  jit: 'off',
};

export interface PostgresServerOptions {
  /** The port of the primary that it copies and follows. Default: none, it begins empty. */
  readonly standbyOf?: number;
}

/** A PostgreSQL server of your own, user and database `postgres`, no password; `stop()` it when done. */
export function startPostgres({ standbyOf }: PostgresServerOptions = {}): Promise<PostgresServer> {
  const identity = unprivileged('postgres');
  return startServer({
    kind: 'postgres',
    identity,
    url: (host, port) => `postgres://postgres@${host}:${port}/postgres`,
    prepare: (place) => fillFolder(place, identity, standbyOf),
    command: ({ folder, port }) => ({ program: 'postgres', args: serverArguments(folder, port) }),
    ask: selectOne,
  });
}

async function fillFolder(place: Place, identity?: Identity, standbyOf?: number): Promise<void> {
  if (identity) chownSync(place.folder, identity.uid, identity.gid);
  const common = [`--pgdata=${join(place.folder, 'data')}`, '--username=postgres', '--no-sync'];
  if (standbyOf === undefined) {
    const options = ['--auth=trust', '--encoding=UTF8', '--no-locale', '--no-instructions'];
    return place.run('initdb', [...common, ...options]);
  }
  const options = ['--host=127.0.0.1', `--port=${standbyOf}`, '--checkpoint=fast', '--write-recovery-conf'];
  return place.run(besideServer(place.binaries.folder, 'pg_basebackup'), [...common, ...options]);
}

/** Where the server is only linked to, its other programs need not be linked to as well. */
function besideServer(folder: string, program: string): string {
  return relative(folder, join(dirname(realpathSync(join(folder, 'postgres'))), program));
}

function serverArguments(folder: string, port: number): string[] {
  const settings = Object.entries(SETTINGS).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  return ['-D', join(folder, 'data'), '-p', String(port), ...settings];
}

async function selectOne(host: string, port: number): Promise<void> {
  const client = new Client({
    host,
    port,
    user: 'postgres',
    database: 'postgres',
    connectionTimeoutMillis: 1_000,
  });
  client.on('error', () => undefined); // a server that goes away while it starts is reported by its exit
  try {
    await client.connect();
    await client.query('SELECT 1');
  } finally {
    await client.end();
  }
}
