import type { WorkerProcess } from './worker-process.js';

/** After so many failures of the first workers it is not bad luck. */
const MOST_FAILED_STARTS = 4;

/**
 * Tells deaths that belong to the game from those that must not happen. A worker that cannot start while a server is
 * away belongs to it, as long as one has started before.
 */
export class WorkerDeaths {
  #everReady = false;
  #failedStarts = 0;
  #lastReason = '';

  constructor(
    private readonly onIncident: (what: string) => void,
    private readonly onHopeless: (what: string) => void,
  ) {}

  ready(): void {
    this.#everReady = true;
  }

  /** The worker said why it cannot start, before it ended. */
  notStarted(reason: string): void {
    this.#lastReason = reason;
  }

  unhandled(worker: WorkerProcess, message: string): void {
    this.onIncident(`${worker.name} met an error that nobody handled: ${message}`);
  }

  died(worker: WorkerProcess, how: string): void {
    if (worker.killedOnPurpose) return;
    if (worker.ready) return this.onIncident(`${worker.name} ended by itself: ${how}`);
    this.#failedStarts += 1;
    if (this.#everReady || this.#failedStarts < MOST_FAILED_STARTS) return;
    this.onHopeless(`no worker can start: ${this.#lastReason || how}`);
  }
}
