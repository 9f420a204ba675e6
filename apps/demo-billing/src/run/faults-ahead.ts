import type { Fault } from '../faults/fault-plan.js';
import type { WorkerProcess } from './worker-process.js';

interface Carried {
  readonly invoiceId: string;
  readonly fault: Fault;
  met: boolean;
}

/** The planned faults that nobody has met yet, and the workers that are on their way to one or stopped by it. */
export class FaultsAhead {
  readonly #planned: Map<string, Fault>;
  readonly #carried = new Map<WorkerProcess, Carried>();

  constructor(strikes: ReadonlyMap<string, Fault>) {
    this.#planned = new Map(strikes);
  }

  awaits(invoiceId: string): boolean {
    return this.#planned.has(invoiceId);
  }

  /** While a worker is on its way to a fault, nobody else may settle that invoice: the fault would strike no more. */
  isOnItsWayTo(invoiceId: string): boolean {
    return [...this.#carried.values()].some((carried) => carried.invoiceId === invoiceId && !carried.met);
  }

  get carriers(): number {
    return this.#carried.size;
  }

  /** The fault goes with this delivery: the same message may be out twice, its fault may not. */
  handTo(worker: WorkerProcess, invoiceId: string): { fault?: Fault } {
    const fault = this.#planned.get(invoiceId);
    if (!fault) return {};
    this.#planned.delete(invoiceId);
    this.#carried.set(worker, { invoiceId, fault, met: false });
    return { fault };
  }

  struck(worker: WorkerProcess): void {
    const carried = this.#carried.get(worker);
    if (carried) carried.met = true;
  }

  /** The worker has answered or died. A step that it never came to is struck at another try. */
  leave(worker: WorkerProcess): void {
    const carried = this.#carried.get(worker);
    this.#carried.delete(worker);
    if (carried && !carried.met) this.#planned.set(carried.invoiceId, carried.fault);
  }
}
