// A private Redis for one benchmark: own port, own folder, gone afterwards.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export async function startRedis() {
  const port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), 'lock-bench-'));
  const args = ['--port', port, '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'no'];
  const server = spawn('redis-server', args.map(String), { stdio: 'ignore' });
  const gone = new Promise((resolve, reject) => {
    server.once('exit', resolve);
    server.once('error', () =>
      reject(new Error('redis-server was not found; install it, or put it on the PATH.')),
    );
  });
  await Promise.race([answering(port), gone]);
  return {
    port,
    async stop() {
      server.kill();
      await gone;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function answering(port) {
  for (;;) {
    const open = await new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1', () => resolve(true)).once('error', () => resolve(false));
      socket.once('connect', () => socket.destroy());
    });
    if (open) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
