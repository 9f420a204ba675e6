import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

import type { CallerNews, CallerOrder } from './caller-process.js';

/** A process that makes calls and stops in the middle of each. */
export class Caller {
  readonly news: CallerNews[] = [];
  readonly #child: ChildProcess;

  constructor(order: CallerOrder) {
    const runner = join(__dirname, '../conformance/run-typescript.mjs');
    const args = [runner, join(__dirname, 'caller-process.ts'), JSON.stringify(order)];
    this.#child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.#child.on('message', (news) => this.news.push(news as CallerNews));
  }

  /** Waits until so many calls have told this. */
  async until(type: CallerNews['type'], count: number): Promise<void> {
    while (this.news.filter((news) => news.type === type).length < count) {
      if (this.#child.exitCode !== null)
        throw new Error(`the calling process ended with ${this.#child.exitCode}`);
      await once(this.#child, 'message', { signal: AbortSignal.timeout(60_000) });
    }
  }

  effectsOf(key: string): number {
    return this.news.filter((news) => news.type === 'effect' && news.key === key).length;
  }

  endOf(key: string): CallerNews | undefined {
    return this.news.find((news) => news.type === 'ended' && news.key === key);
  }

  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  /** Wakes it up and lets its calls go on. Resolves when it has ended by itself. */
  async resume(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGCONT');
    this.#child.send('go on');
    await ended;
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }
}
