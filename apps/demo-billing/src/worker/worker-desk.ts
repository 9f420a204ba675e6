import { describeFailure } from './failure.js';
import type { FaultPoints } from './fault-points.js';
import type { Answer, Delivery, FromWorker } from './messages.js';

/** Whoever settles invoices here. */
export interface Biller {
  settle(invoiceId: string): Promise<unknown>;
}

/** Takes one delivery at a time, has it settled, and answers. */
export class WorkerDesk {
  #invoiceId = '';
  #token = 0;

  constructor(
    private readonly faults: FaultPoints,
    private readonly tell: (message: FromWorker) => Promise<void>,
  ) {}

  /** A lock was acquired: that of the invoice on the desk. */
  acquired(token: number): void {
    this.#token = token;
    void this.tell({ kind: 'acquired', invoiceId: this.#invoiceId, token });
  }

  async take(delivery: Delivery, biller: Biller): Promise<void> {
    this.#invoiceId = delivery.invoiceId;
    this.faults.expect(delivery.fault);
    await this.tell(await this.#answer(delivery, biller));
  }

  async #answer(delivery: Delivery, biller: Biller): Promise<Answer> {
    try {
      await biller.settle(delivery.invoiceId);
      return { kind: 'settled', delivery, token: this.#token };
    } catch (error) {
      return { kind: 'failed', delivery, failure: describeFailure(error) };
    }
  }
}
