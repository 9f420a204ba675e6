import { fork, type ChildProcess } from 'node:child_process';

import { SETTINGS_VARIABLE } from './child-side.js';

const children = new Set<ChildProcess>();

/** Whatever ends this process, no child of it stays behind: neither running nor stopped. */
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
});

/** Starts another program of the demo. `settings` reach it as JSON. */
export function startChild(program: URL, settings: object): ChildProcess {
  const child = fork(program, {
    env: { ...process.env, [SETTINGS_VARIABLE]: JSON.stringify(settings) },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [], // a debugger of this process is not one of the child
  });
  children.add(child);
  child.once('exit', () => children.delete(child));
  child.on('error', () => undefined); // a message that met a dead child; its exit says so as well
  return child;
}

export function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}

/** Resolves when the child is gone. */
export function exited(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (isRunning(child)) child.once('exit', () => resolve());
    else resolve();
  });
}
