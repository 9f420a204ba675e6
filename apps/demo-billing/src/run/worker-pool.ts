import { exited, startChild } from '../processes/parent-side.js';
import type { FromWorker } from '../worker/messages.js';
import { WorkerProcess } from './worker-process.js';

export interface WorkerPoolListener {
  said(worker: WorkerProcess, message: FromWorker): void;
  /** It is gone, for whatever reason; a replacement is on its way. `how` says what the system knows. */
  died(worker: WorkerProcess, how: string): void;
}

const WORKER_PROGRAM = new URL('../worker/main.js', import.meta.url);
/** A worker that could not start meets the same trouble if it is tried again at once. */
const RESTART_AFTER_MS = 500;

/** Keeps a number of worker processes running: whoever dies is replaced. */
export class WorkerPool {
  readonly #workers = new Map<WorkerProcess, { readonly exited: Promise<void> }>();
  readonly #restarts = new Set<NodeJS.Timeout>();
  #started = 0;
  #stopping = false;

  constructor(
    readonly size: number,
    private readonly settings: object,
    private readonly listener: WorkerPoolListener,
  ) {}

  start(): void {
    for (let i = 0; i < this.size; i += 1) this.#startOne();
  }

  get ready(): WorkerProcess[] {
    return [...this.#workers.keys()].filter((worker) => worker.ready);
  }

  /** How many are still starting, or about to be. */
  get missing(): number {
    return this.size - this.ready.length;
  }

  /** Lets each worker close its connections; who has not after `graceMs` is killed. Never rejects. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    for (const timer of this.#restarts) clearTimeout(timer);
    const limit = setTimeout(() => this.#killAll(), graceMs);
    for (const worker of this.#workers.keys()) {
      worker.stop();
    }
    await Promise.all([...this.#workers.values()].map((each) => each.exited));
    clearTimeout(limit);
  }

  #startOne(): void {
    const child = startChild(WORKER_PROGRAM, this.settings);
    const worker = new WorkerProcess(`worker ${++this.#started}`, child);
    this.#workers.set(worker, { exited: exited(child) });
    child.on('message', (message) => {
      worker.note(message as FromWorker);
      this.listener.said(worker, message as FromWorker);
    });
    child.once('exit', (code, signal) => {
      const how = signal ?? `exit code ${code}`;
      // Its last words may still be on their way.
      if (child.connected) child.once('disconnect', () => this.#exited(worker, how));
      else this.#exited(worker, how);
    });
  }

  #exited(worker: WorkerProcess, how: string): void {
    this.#workers.delete(worker);
    if (this.#stopping) return;
    const timer = setTimeout(
      () => {
        this.#restarts.delete(timer);
        this.#startOne();
      },
      worker.ready ? 0 : RESTART_AFTER_MS,
    );
    this.#restarts.add(timer);
    this.listener.died(worker, how);
  }

  #killAll(): void {
    for (const worker of this.#workers.keys()) worker.kill();
  }
}
