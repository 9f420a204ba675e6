import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

import type { ConsumerNews } from './queue-consumer.js';

/** A process starts in a second, and in minutes on a busy machine. */
const PATIENCE_MS = 120_000;

/** A consumer in a process of its own, which can be stopped and killed. */
export class ConsumerProcess {
  readonly news: ConsumerNews[] = [];
  readonly #child: ChildProcess;

  constructor(url: string, queue: string) {
    const runner = join(__dirname, '../conformance/run-typescript.mjs');
    const args = [runner, join(__dirname, 'queue-consumer-process.ts'), url, queue];
    this.#child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.#child.on('message', (news) => this.news.push(news as ConsumerNews));
  }

  async until(type: ConsumerNews['type'], count: number): Promise<void> {
    while (this.news.filter((news) => news.type === type).length < count)
      await once(this.#child, 'message', { signal: AbortSignal.timeout(PATIENCE_MS) });
  }

  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  /** Wakes it up, and has it go on with its jobs. */
  resume(): void {
    this.#child.kill('SIGCONT');
    this.#child.send('go on');
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }
}
