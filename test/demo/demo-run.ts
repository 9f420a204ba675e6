import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

import { buildDemo } from '../../scripts/prepare.mjs';

const REPOSITORY = resolve(__dirname, '../..');
const CHINOOK = resolve(REPOSITORY, '../shared/data/chinook-invoices.csv');

export const SAMPLE = join(REPOSITORY, 'apps/demo-billing/data/invoices.csv');

/** 412 real-shaped invoices where the machine has them, else the sample of the demo. */
export const LARGEST_FILE = existsSync(CHINOOK) ? CHINOOK : SAMPLE;

/** The line that `--json` ends standard output with. */
export interface AccountLine {
  readonly invoices: number;
  readonly settled: number;
  readonly charges: number;
  readonly doubleCharges: number;
  readonly totalsMinor: Readonly<Record<string, string>>;
  readonly staleWritesRefused: number;
  readonly duplicatesPrevented: number;
  readonly messages: number;
  readonly replayed: number;
  readonly inProgress: number;
  readonly furtherAttempts: number;
  readonly paidOut: number;
  readonly takeOvers: number;
  readonly pauses: number;
  readonly kills: number;
  readonly durationMs: number;
  readonly ok: boolean;
}

/** Compiles what has changed; call it in `beforeAll`, with time to spare. */
export const compileDemo = buildDemo;
export const COMPILE_TIMEOUT_MS = 240_000;

/** A demo of this test only, with a temporary folder of its own. Ended at the latest by {@link end}. */
export class DemoRun {
  readonly #folder = mkdtempSync(join(tmpdir(), 'demo-test-'));
  readonly #child: ChildProcess;
  readonly #exited: Promise<number | null>;
  stdout = '';
  stderr = '';

  constructor(args: readonly string[]) {
    const program = join(REPOSITORY, 'dist/apps/demo-billing/main.js');
    this.#child = spawn(process.execPath, [program, ...args], {
      cwd: REPOSITORY,
      env: { ...process.env, TMPDIR: this.#folder },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child.stdout?.on('data', (chunk) => (this.stdout += String(chunk)));
    this.#child.stderr?.on('data', (chunk) => (this.stderr += String(chunk)));
    this.#exited = new Promise((settle) => this.#child.once('close', (code) => settle(code)));
  }

  get pid(): number {
    return this.#child.pid as number;
  }

  /** Resolves with the exit code. */
  exited(): Promise<number | null> {
    return this.#exited;
  }

  /** How many invoices are settled, by the last line of progress. */
  get settled(): number {
    return Number([...this.stderr.matchAll(/settled (\d+) of/g)].at(-1)?.[1] ?? 0);
  }

  /** Resolves once some invoices are settled, and rejects when the run is over before. */
  underWay(): Promise<void> {
    return this.until(() => this.settled > 0);
  }

  /** Resolves once it has come so far, and rejects when the run is over before. */
  async until(reached: () => boolean): Promise<void> {
    let over = false;
    void this.#exited.then(() => (over = true));
    while (!reached()) {
      if (over) throw new Error(`The demo ended early:\n${this.stdout}${this.stderr}`);
      await new Promise((wake) => setTimeout(wake, 50));
    }
  }

  /** @throws when standard output does not end with one line of JSON */
  get account(): AccountLine {
    return JSON.parse(this.stdout.trimEnd().split('\n').at(-1) as string) as AccountLine;
  }

  /** What it has left in its temporary folder. */
  get litter(): string[] {
    return readdirSync(this.#folder);
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  async end(): Promise<void> {
    this.#child.kill('SIGTERM');
    await this.#exited;
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Runs the demo to its end, for `look` to look at what it came to. */
export async function withDemo<T>(
  args: readonly string[],
  look: (run: DemoRun) => Promise<T> | T,
): Promise<T> {
  const run = new DemoRun(args);
  try {
    return await look(run);
  } finally {
    await run.end();
  }
}
