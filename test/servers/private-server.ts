import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { adviceFor, launch, locate, type Binaries, type ServerKind } from './binaries.mjs';
import { freePort } from './free-port.js';
import { anyRuns, descendants, killTree, removeServerFolder, signal } from './process-tree.mjs';
import { guardServer, unguardServer } from './server-guard.js';

/** A server of this test only: own loopback port, own temporary folder. It ends with the test process at the latest. */
export interface TestServer {
  readonly host: string;
  readonly port: number;
  readonly url: string;
  /** Its temporary folder: data and log. */
  readonly folder: string;
  /** The main process; undefined while the server is down. */
  readonly pid: number | undefined;
  /** Starts it again after {@link kill}, on the same port and data, and resolves once it answers. */
  start(): Promise<void>;
  /** SIGKILL for the server and all its processes. Data stays. Resolves when they are gone. */
  kill(): Promise<void>;
  /** SIGSTOP for all its processes: connections stay open and nothing answers. */
  pause(): void;
  resume(): void;
  /** Ends it and removes its folder. Twice is harmless. */
  stop(): Promise<void>;
}

export interface Identity {
  readonly uid: number;
  readonly gid: number;
}

/** What is particular to one kind of server. */
export interface ServerRecipe {
  readonly kind: ServerKind;
  /** Whom to run as; undefined: as ourselves. */
  readonly identity?: Identity | undefined;
  url(host: string, port: number): string;
  prepare?(server: Place): Promise<void>;
  command(server: Place): { readonly program: string; readonly args: readonly string[] };
  /** Rejects, or waits no longer than a moment, until the server answers. */
  ask(host: string, port: number): Promise<void>;
}

export interface Place {
  readonly folder: string;
  readonly port: number;
  readonly binaries: Binaries;
  /** Runs a program to its end, with `input` on its standard input. */
  run(program: string, args: readonly string[], input?: string): Promise<void>;
}

const HOST = '127.0.0.1';
const START_LIMIT_MS = 60_000;
const PORT_ATTEMPTS = 5;

export async function startServer(recipe: ServerRecipe): Promise<TestServer> {
  const binaries = locate(recipe.kind);
  if (!binaries) throw new Error(`${recipe.kind}: ${adviceFor(recipe.kind)}.`);
  const server = new PrivateServer(recipe, binaries);
  try {
    await server.begin();
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

class PrivateServer implements TestServer, Place {
  readonly host = HOST;
  readonly folder = mkdtempSync(join(tmpdir(), 'lock-test-'));
  #port = 0;
  #child: ChildProcess | null = null;
  #stopped = false;

  constructor(
    private readonly recipe: ServerRecipe,
    readonly binaries: Binaries,
  ) {}

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return this.recipe.url(this.host, this.port);
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** The first start: another process may take the port between our look and the server's, so it may take a second try. */
  async begin(): Promise<void> {
    guardServer(this.folder, null);
    await this.recipe.prepare?.(this);
    for (let attempt = 1; ; attempt += 1) {
      this.#port = await freePort();
      try {
        return await this.start();
      } catch (error) {
        if (attempt === PORT_ATTEMPTS || !this.#log().includes('already in use')) throw error;
      }
    }
  }

  async start(): Promise<void> {
    if (this.#stopped) throw new Error('This server was stopped and its data removed: start another one.');
    if (this.#child) throw new Error('This server runs already.');
    const { program, args } = this.recipe.command(this);
    const child = this.#spawn(program, args);
    await once(child, 'spawn');
    this.#child = child;
    child.once('exit', () => {
      if (this.#child === child) this.#child = null;
    });
    guardServer(this.folder, child.pid ?? null);
    await this.#untilItAnswers(child);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (!child?.pid) return;
    const exited = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined;
    const tree = killTree(child.pid);
    await exited;
    while (anyRuns(tree)) await sleep(5);
    this.#child = null;
    guardServer(this.folder, null);
  }

  pause(): void {
    const pid = this.#runningPid();
    signal(pid, 'SIGSTOP');
    for (const each of descendants(pid)) signal(each, 'SIGSTOP');
  }

  resume(): void {
    const pid = this.#runningPid();
    for (const each of descendants(pid)) signal(each, 'SIGCONT');
    signal(pid, 'SIGCONT');
  }

  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    await this.kill();
    removeServerFolder(this.folder);
    await unguardServer(this.folder);
  }

  async run(program: string, args: readonly string[], input = ''): Promise<void> {
    const child = this.#spawn(program, args, 'pipe');
    child.stdin?.on('error', () => undefined); // it may end before it has read all: its exit code is the answer
    child.stdin?.end(input);
    const [code] = (await once(child, 'exit')) as [number | null];
    if (code !== 0) throw new Error(`${program} ended with ${String(code)}:\n${this.#log()}`);
  }

  #spawn(program: string, args: readonly string[], stdin: 'ignore' | 'pipe' = 'ignore'): ChildProcess {
    const log = openSync(this.#logFile, 'a');
    const { file, before, environment } = launch(this.binaries, program);
    const child = spawn(file, [...before, ...args], {
      ...this.recipe.identity,
      cwd: this.folder,
      // Nothing of ours leaks in: a PGDATA or PGPORT of the machine must not lead to its own server.
      env: { PATH: process.env['PATH'], HOME: this.folder, LC_ALL: 'C', TZ: 'UTC', ...environment },
      detached: true, // Ctrl-C at the terminal is for the tests; the servers follow
      stdio: [stdin, log, log],
    });
    closeSync(log);
    child.unref();
    return child;
  }

  async #untilItAnswers(child: ChildProcess): Promise<void> {
    const startedMs = performance.now();
    while (performance.now() - startedMs < START_LIMIT_MS) {
      if (child.exitCode !== null || child.signalCode !== null) break;
      try {
        return await this.recipe.ask(this.host, this.port);
      } catch {
        await sleep(10); // not up yet: the limit above decides when to give up
      }
    }
    await this.kill();
    throw new Error(`${this.recipe.kind} did not start on port ${this.port}:\n${this.#log()}`);
  }

  #runningPid(): number {
    if (!this.#child?.pid) throw new Error('This server is down.');
    return this.#child.pid;
  }

  get #logFile(): string {
    return join(this.folder, 'server.log');
  }

  #log(): string {
    return readFileSync(this.#logFile, 'utf8').split('\n').slice(-20).join('\n');
  }
}
