import type { IdempotencyEvent } from 'nestjs-distributed-lock';

import { describeFailure, refuserOf } from './failure.js';
import type { FaultPoints } from './fault-points.js';
import type { Answer, Delivery, FromWorker } from './messages.js';

/** Whoever settles invoices here. */
export interface Biller {
  settle(invoiceId: string): Promise<unknown>;
}

/** What locks and records tell while the invoice on the desk is settled. */
export type DeskNews = { readonly type: 'acquired'; readonly token: number } | IdempotencyEvent;

/** Takes one delivery at a time, has it settled, and answers. */
export class WorkerDesk {
  #invoiceId = '';
  #token: number | null = null;

  constructor(
    private readonly faults: FaultPoints,
    private readonly tell: (message: FromWorker) => Promise<void>,
  ) {}

  /** Passes on what the account is made of. */
  heard(news: DeskNews): void {
    switch (news.type) {
      case 'acquired':
        this.#token = news.token;
        return void this.tell({ kind: 'acquired', invoiceId: this.#invoiceId, token: news.token });
      case 'replayed':
        return void this.tell({ kind: 'replayed' });
      case 'claimed':
        return void this.tell({ kind: 'attempted', invoiceId: this.#invoiceId, attempt: news.attempt });
      case 'failed':
        return this.#failed(news.cause);
    }
  }

  async take(delivery: Delivery, biller: Biller): Promise<void> {
    this.#invoiceId = delivery.invoiceId;
    this.#token = null;
    this.faults.expect(delivery.fault);
    await this.tell(await this.#answer(delivery, biller));
  }

  /** The call may still be answered, by what a successor has done in the meantime. */
  #failed(cause: unknown): void {
    this.#token = null;
    const by = refuserOf(cause);
    if (by) void this.tell({ kind: 'refused', by });
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
