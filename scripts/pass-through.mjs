import { spawn } from 'node:child_process';

/** @type {readonly NodeJS.Signals[]} */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/**
 * Runs node with these arguments as if it had been started instead of us: its streams, exit code and signals are ours.
 *
 * @param {readonly string[]} args
 * @param {NodeJS.ProcessEnv} [environment]
 */
export function becomeNode(args, environment = process.env) {
  const child = spawn(process.execPath, args, { stdio: 'inherit', env: environment });
  for (const name of SIGNALS) process.on(name, () => forward(child, name));
  child.once('error', (error) => {
    throw error;
  });
  child.once('exit', (code, signal) => {
    for (const name of SIGNALS) process.removeAllListeners(name);
    if (signal) process.kill(process.pid, signal);
    else process.exitCode = code ?? 1;
  });
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {NodeJS.Signals} name
 */
function forward(child, name) {
  // Ctrl-C reaches the whole foreground group: a second SIGINT from us would look like a second Ctrl-C.
  if (name === 'SIGINT' && process.stdin.isTTY) return;
  child.kill(name);
}
