import type { Refuser } from '../worker/messages.js';

interface Acquisition {
  readonly worker: string;
  readonly token: number;
}

/** What happened during a run, as it was seen to happen. */
export class RunJournal {
  pauses = 0;
  kills = 0;
  /** Deliveries that were answered from the record. */
  replays = 0;
  /** Deliveries that met the same payout at work elsewhere: not acknowledged, and delivered again. */
  inProgress = 0;
  /** Things that must not happen, whatever the faults: each makes the run fail. */
  readonly incidents: string[] = [];
  readonly #refusals = new Map<Refuser, number>();
  readonly #acquisitions = new Map<string, Acquisition[]>();
  readonly #furtherAttempts = new Set<string>();
  readonly #settled = new Set<string>();
  /** The token of the worker that was first to say that it has settled the invoice. */
  readonly #settledUnder = new Map<string, number>();

  acquired(invoiceId: string, worker: string, token: number): void {
    const list = this.#acquisitions.get(invoiceId) ?? [];
    list.push({ worker, token });
    this.#acquisitions.set(invoiceId, list);
  }

  attempted(invoiceId: string, attempt: number): void {
    if (attempt > 1) this.#furtherAttempts.add(JSON.stringify([invoiceId, attempt]));
  }

  /** Attempts at a payout beyond the first one. One that found the lock busy has kept its number, and is no further one. */
  get furtherAttempts(): number {
    return this.#furtherAttempts.size;
  }

  /** `token` is null when the worker was only told that the invoice is settled. */
  settled(invoiceId: string, token: number | null): void {
    this.#settled.add(invoiceId);
    if (token !== null && !this.#settledUnder.has(invoiceId)) this.#settledUnder.set(invoiceId, token);
  }

  refused(refuser: Refuser): void {
    this.#refusals.set(refuser, this.refusals(refuser) + 1);
  }

  refusals(refuser: Refuser): number {
    return this.#refusals.get(refuser) ?? 0;
  }

  get settledInvoices(): number {
    return this.#settled.size;
  }

  /**
   * Invoices that one worker began and another one took over. Tokens tell the order, since messages of two processes do
   * not: who acquires after an orderly end has taken over nothing.
   */
  get takeOvers(): number {
    return [...this.#acquisitions].filter(([invoiceId, acquisitions]) => {
      const unfinished = acquisitions.filter(({ token }) => token <= this.#endOf(invoiceId));
      return new Set(unfinished.map(({ worker }) => worker)).size > 1;
    }).length;
  }

  #endOf(invoiceId: string): number {
    return this.#settledUnder.get(invoiceId) ?? Infinity;
  }
}
