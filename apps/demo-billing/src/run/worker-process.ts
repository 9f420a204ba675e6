import type { ChildProcess } from 'node:child_process';

import { isRunning } from '../processes/parent-side.js';
import type { Delivery, FromWorker, ToWorker } from '../worker/messages.js';

/** One worker process, as the coordinator sees it. It works on one delivery at a time. */
export class WorkerProcess {
  #ready = false;
  #delivery: Delivery | null = null;
  #killedOnPurpose = false;

  constructor(
    readonly name: string,
    private readonly child: ChildProcess,
  ) {}

  get ready(): boolean {
    return this.#ready;
  }

  /** True for a worker that was killed by the plan, or because it hung. */
  get killedOnPurpose(): boolean {
    return this.#killedOnPurpose;
  }

  get idle(): boolean {
    return this.#ready && this.#delivery === null && isRunning(this.child);
  }

  /** What it works on; null when idle. */
  get delivery(): Delivery | null {
    return this.#delivery;
  }

  deliver(delivery: Delivery): void {
    this.#delivery = delivery;
    this.#tell({ kind: 'settle', delivery });
  }

  /** Keeps account of what the worker says of itself. */
  note(message: FromWorker): void {
    if (message.kind === 'ready') this.#ready = true;
    if (message.kind === 'settled' || message.kind === 'failed') this.#delivery = null;
  }

  wake(): void {
    this.child.kill('SIGCONT');
  }

  kill(): void {
    this.#killedOnPurpose = true;
    this.child.kill('SIGKILL');
  }

  /** Asks it to end when it has answered. */
  stop(): void {
    this.#tell({ kind: 'stop' });
  }

  #tell(message: ToWorker): void {
    if (this.child.connected) this.child.send(message, () => undefined); // a dead worker is told by its exit
  }
}
