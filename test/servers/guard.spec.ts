import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { until } from './eventually.js';
import { anyRuns, killTree } from './process-tree.mjs';

const GUARD = join(import.meta.dirname, 'guard.mjs');

/** A test waits for as long as it may last. */
const TEST_LIMIT_MS = 90_000;

/** Starts a guard for the server of its arguments, as a test process would, and then hangs. */
const OWNER = `
  import { spawn } from 'node:child_process';
  const [guard, folder, pid, mainProcess] = process.argv.slice(1);
  const child = spawn(process.execPath, [guard, mainProcess], { detached: true, stdio: ['pipe', 'ignore', 'inherit'] });
  child.stdin.write(JSON.stringify({ folder, pid: Number(pid) }) + '\\n', () => console.log('guarded'));
  setTimeout(() => undefined, 600_000);
`;

/** A server with one child process, as far as the guard can tell. */
function startServer(): ChildProcess {
  return spawn('sh', ['-c', 'sleep 600 & wait'], { stdio: 'ignore' });
}

async function startOwner(folder: string, server: ChildProcess, mainProcess = ''): Promise<ChildProcess> {
  const args = ['--input-type=module', '-e', OWNER, GUARD, folder, String(server.pid), mainProcess];
  const owner = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  if (owner.stdout) await once(owner.stdout, 'data');
  return owner;
}

describe('the guard of the servers', () => {
  let folder: string;
  let server: ChildProcess;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'lock-test-'));
    server = startServer();
  });

  afterEach(() => {
    killTree(server.pid as number);
  });

  it('ends a server and removes its folder when the test process is killed', async () => {
    const owner = await startOwner(folder, server);
    expect(anyRuns([server.pid as number])).toBe(true);
    owner.kill('SIGKILL');
    await until('the folder is removed', () => !existsSync(folder), TEST_LIMIT_MS);
    expect(anyRuns([server.pid as number])).toBe(false);
  });

  it('does so as well when only the main process of the tests is killed and its worker lives on', async () => {
    const mainProcess = startServer();
    const owner = await startOwner(folder, server, String(mainProcess.pid));
    killTree(mainProcess.pid as number);
    await until('the folder is removed', () => !existsSync(folder), TEST_LIMIT_MS);
    expect(anyRuns([server.pid as number])).toBe(false);
    expect(anyRuns([owner.pid as number])).toBe(true);
    owner.kill('SIGKILL');
  });
});
