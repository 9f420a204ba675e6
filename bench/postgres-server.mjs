// A private PostgreSQL for one benchmark: own port, own folder, gone afterwards. Null where the machine has none.
import { spawn, spawnSync } from 'node:child_process';
import { chownSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import pg from 'pg';

import { locate } from '../test/servers/binaries.mjs';
import { freePort } from './redis-server.mjs';

export async function startPostgres() {
  const binaries = locate('postgres');
  if (!binaries) return null;
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), 'lock-bench-'));
  const data = join(folder, 'data');
  const libraries = binaries.libraries.join(':');
  const options = {
    ...unprivileged(folder),
    cwd: folder,
    stdio: 'ignore',
    env: { PATH: process.env.PATH, LC_ALL: 'C', ...(libraries && { LD_LIBRARY_PATH: libraries }) },
  };
  const settings = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'fsync=off'];
  const init = ['-D', data, '--username=postgres', '--auth=trust', '--no-sync'];
  spawnSync(join(binaries.folder, 'initdb'), init, options);
  const args = ['-D', data, '-p', String(port), ...settings.flatMap((setting) => ['-c', setting])];
  const server = spawn(join(binaries.folder, 'postgres'), args, options);
  const gone = new Promise((resolve) => server.once('exit', resolve));
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  await Promise.race([answering(url), gone.then(() => Promise.reject(new Error('postgres did not start.')))]);
  return {
    url,
    async stop() {
      server.kill('SIGINT'); // ends sessions at once
      await gone;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function answering(url) {
  for (;;) {
    const client = new pg.Client(url);
    const up = await client.connect().then(
      () => true,
      () => false,
    );
    await client.end().catch(() => undefined);
    if (up) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** PostgreSQL refuses to run as root: some other user of this machine, then. */
function unprivileged(folder) {
  if (process.getuid() !== 0) return {};
  const users = readFileSync('/etc/passwd', 'utf8').split('\n');
  const [, , uid, gid] = users.find((line) => /^(?:postgres|nobody):/.test(line)).split(':');
  chownSync(folder, Number(uid), Number(gid));
  return { uid: Number(uid), gid: Number(gid) };
}
