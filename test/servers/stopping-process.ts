import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const RUNNER = join(__dirname, '..', 'conformance', 'run-typescript.mjs');

/** A process that stops itself, and prints its answer as JSON at its end. */
export interface StoppingProcess<Answer> {
  /** Resolves once it has stopped itself. */
  stopped(): Promise<void>;
  /** Lets it go on, to its end. */
  answer(): Promise<Answer>;
  kill(): void;
}

/** Runs a TypeScript file, which finds `order` as JSON in its first argument. */
export function startStopping<Answer>(script: string, order: object): StoppingProcess<Answer> {
  const child = spawn(process.execPath, [RUNNER, script, JSON.stringify(order)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  let failed = '';
  child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (failed += chunk.toString()));
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  return {
    async stopped() {
      while (!isStopped(child)) {
        if (child.exitCode !== null) throw new Error(`it ended before it was stopped: ${failed}`);
        await sleep(20);
      }
    },
    async answer() {
      child.kill('SIGCONT');
      await ended;
      if (child.exitCode !== 0) throw new Error(`it ended with ${child.exitCode}: ${failed}`);
      return JSON.parse(said) as Answer;
    },
    kill: () => void child.kill('SIGKILL'),
  };
}

function isStopped({ pid }: ChildProcess): boolean {
  try {
    return execFileSync('ps', ['-o', 'stat=', '-p', String(pid)], { encoding: 'utf8' }).startsWith('T');
  } catch {
    return false; // it has ended
  }
}
