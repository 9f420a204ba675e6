import type { Fault, FaultPlan } from '../faults/fault-plan.js';
import type { Answer, FromWorker } from '../worker/messages.js';
import { DeliveryQueue } from './delivery-queue.js';
import { FaultsAhead } from './faults-ahead.js';
import type { RunJournal } from './run-journal.js';
import type { WorkerPool } from './worker-pool.js';
import type { WorkerProcess } from './worker-process.js';

export interface DispatcherOptions {
  /** The invoice that each message is about. */
  readonly messages: readonly string[];
  readonly strikes: FaultPlan['strikes'];
  /** How long a worker stays stopped. */
  readonly pauseMs: number;
  readonly visibilityMs: number;
  /** A worker that says nothing for so long is beyond hope. */
  readonly hungAfterMs: number;
}

/** Hands invoices to workers, lets the planned faults strike, and hears what came of it. */
export class Dispatcher {
  readonly #queue: DeliveryQueue;
  readonly #faults: FaultsAhead;
  readonly #wakeUps = new Set<NodeJS.Timeout>();
  readonly #patience = new Map<WorkerProcess, NodeJS.Timeout>();
  #onFinished: (() => void) | undefined;
  #stopped = false;

  constructor(
    private readonly pool: Pick<WorkerPool, 'size' | 'ready' | 'missing'>,
    private readonly journal: RunJournal,
    private readonly options: DispatcherOptions,
  ) {
    const { messages, strikes, visibilityMs } = options;
    this.#faults = new FaultsAhead(strikes);
    this.#queue = new DeliveryQueue(messages, { visibilityMs, onChange: () => this.#dispatch() });
  }

  /** Resolves when every message is done and every worker has answered. */
  finished(): Promise<void> {
    return new Promise((resolve) => {
      this.#onFinished = resolve;
      this.#dispatch();
    });
  }

  /** What is said from now on is heard by nobody, and starts nothing. */
  stop(): void {
    this.#stopped = true;
    this.#onFinished = undefined;
    this.#queue.stop();
    for (const timer of [...this.#wakeUps, ...this.#patience.values()]) clearTimeout(timer);
  }

  said(worker: WorkerProcess, message: FromWorker): void {
    if (this.#stopped) return;
    switch (message.kind) {
      case 'ready':
        return this.#dispatch();
      case 'acquired':
        return this.journal.acquired(message.invoiceId, worker.name, message.token);
      case 'refused':
        return this.journal.refused(message.by);
      case 'replayed':
        return void (this.journal.replays += 1);
      case 'attempted':
        return this.journal.attempted(message.invoiceId, message.attempt);
      case 'struck':
        return this.#strike(worker, message.fault);
      case 'settled':
      case 'failed':
        return this.#answered(worker, message);
    }
  }

  died(worker: WorkerProcess): void {
    if (this.#stopped) return;
    this.#forget(worker);
    if (worker.delivery) this.#queue.workerDied(worker.delivery.deliveryId);
  }

  #dispatch(): void {
    if (this.#queue.finished) return this.#onFinished?.();
    const { ready } = this.pool;
    for (const worker of ready) if (worker.idle) this.#deliverTo(worker, ready.length === 1);
  }

  #deliverTo(worker: WorkerProcess, only: boolean): void {
    const mayStrike = this.#mayStrike();
    const taken = this.#queue.take(
      worker.name,
      only,
      (id) => (mayStrike || !this.#faults.awaits(id)) && !this.#faults.isOnItsWayTo(id),
    );
    if (!taken) return;
    const delivery = { ...taken, ...this.#faults.handTo(worker, taken.invoiceId) };
    const patience = setTimeout(() => this.#giveUp(worker), this.options.hungAfterMs);
    this.#patience.set(worker, patience);
    worker.deliver(delivery);
  }

  /** One worker always stays out of it, so that there is somebody to take over. */
  #mayStrike(): boolean {
    return this.#faults.carriers + this.pool.missing < Math.max(1, this.pool.size - 1);
  }

  #strike(worker: WorkerProcess, fault: Fault): void {
    this.#faults.struck(worker);
    if (fault.kind === 'kill') {
      this.journal.kills += 1;
      return worker.kill();
    }
    this.journal.pauses += 1;
    const timer = setTimeout(() => {
      this.#wakeUps.delete(timer);
      worker.wake();
    }, this.options.pauseMs);
    this.#wakeUps.add(timer);
    this.#dispatch();
  }

  #answered(worker: WorkerProcess, answer: Answer): void {
    this.#forget(worker);
    const { deliveryId, invoiceId } = answer.delivery;
    if (answer.kind === 'settled') {
      this.journal.settled(invoiceId, answer.token);
      return this.#queue.done(deliveryId);
    }
    const { failure } = answer;
    if (failure.code === 'IDEMPOTENCY_IN_PROGRESS') this.journal.inProgress += 1;
    if (!failure.permanent) return this.#queue.retryLater(deliveryId);
    this.journal.incidents.push(
      `invoice ${invoiceId} cannot be settled: ${failure.code}: ${failure.message}`,
    );
    this.#queue.done(deliveryId);
  }

  #giveUp(worker: WorkerProcess): void {
    this.journal.incidents.push(`${worker.name} did not answer for ${this.options.hungAfterMs / 1_000} s`);
    worker.kill();
  }

  #forget(worker: WorkerProcess): void {
    this.#faults.leave(worker);
    clearTimeout(this.#patience.get(worker));
    this.#patience.delete(worker);
  }
}
