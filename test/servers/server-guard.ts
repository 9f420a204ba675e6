import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

/** Folders that are looked after now; the guard process runs exactly as long as there are any. */
const guarded = new Set<string>();
let guard: ChildProcess | null = null;

/** From now on the server ends with this process, even if that is killed. `pid` is null while the server is down. */
export function guardServer(folder: string, pid: number | null): void {
  guarded.add(folder);
  guard ??= startGuard();
  guard.stdin?.write(`${JSON.stringify({ folder, pid })}\n`);
}

export async function unguardServer(folder: string): Promise<void> {
  if (!guarded.delete(folder) || guard === null) return;
  const informed = guard;
  informed.stdin?.write(`${JSON.stringify({ folder })}\n`);
  if (guarded.size > 0) return;
  guard = null;
  const ended = once(informed, 'exit');
  informed.stdin?.end();
  await ended;
}

function startGuard(): ChildProcess {
  const script = join(import.meta.dirname, 'guard.mjs');
  const mainProcess = process.send ? [String(process.ppid)] : [];
  // Detached, so that Ctrl-C at the terminal does not end the guard before the tests.
  const child = spawn(process.execPath, [script, ...mainProcess], {
    detached: true,
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  child.unref();
  (child.stdin as unknown as { unref(): void }).unref();
  return child;
}
