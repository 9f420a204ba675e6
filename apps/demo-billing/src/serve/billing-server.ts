import { join } from 'node:path';

import type { DemoOptions } from '../command-line/demo-options.js';
import { InputError } from '../command-line/input-error.js';
import type { InvoiceLine } from '../invoices/invoice-line.js';
import { GatewayProcess } from '../run/gateway-process.js';
import { openBook } from '../run/open-book.js';
import { RunInterrupted } from '../run/run-interrupted.js';
import type { StorageSettings } from '../storage/storage-settings.js';
import { invitation } from './invitation.js';
import { ReplicaProcess } from './replica-process.js';

const REPLICAS = 2;
/** Whoever kills a replica in the middle of a payment waits this long for the answer of the other one. */
const WISHED_LEASE_MS = 5_000;

export type ServeOptions = Pick<DemoOptions, 'store' | 'unsafe'> & { readonly port: number };

/** The HTTP side: the gateway and two replicas of one application, for whoever wants to try it by hand. */
export class BillingServer {
  readonly #ended: Promise<never>;
  #end!: (why: Error) => void;

  constructor(
    private readonly options: ServeOptions,
    private readonly invoices: readonly InvoiceLine[],
    private readonly print: (text: string) => void,
  ) {
    this.#ended = new Promise((_, reject) => (this.#end = reject));
    this.#ended.catch(() => undefined); // it may be interrupted while nobody waits
  }

  /**
   * Serves until it is interrupted. `folder` is its own and takes the gateway's ledger.
   *
   * @throws {InputError} the store or the port cannot be used
   * @throws {RunInterrupted} after {@link interrupt}; no process is left
   */
  async serve(storage: StorageSettings, folder: string): Promise<never> {
    const [invoice] = this.invoices;
    if (!invoice) throw new InputError('there is no invoice to pay; check --input');
    const { book, times } = await openBook(storage, this.invoices, this.options.store, WISHED_LEASE_MS);
    const ledgerFile = join(folder, 'ledger.jsonl');
    const gateway = new GatewayProcess({ ledgerFile, loseAnswersOf: [] }, (what) => this.fail(what));
    let replicas: readonly ReplicaProcess[] = [];
    try {
      const gatewayAddress = await this.#unlessEnded(gateway.listening());
      const settings = { storage, gatewayAddress, ...times, unsafe: this.options.unsafe };
      replicas = this.#ports.map((port) => new ReplicaProcess({ ...settings, port }));
      const addresses = await this.#unlessEnded(Promise.all(replicas.map((each) => each.listening())));
      void Promise.all(replicas.map((each) => each.gone())).then(() => this.fail('no replica is left'));
      this.print(invitation(invoice, addresses, gatewayAddress));
      return await this.#ended;
    } finally {
      await Promise.all(replicas.map((each) => each.stop()));
      await gateway.stop();
      await book.close();
    }
  }

  fail(what: string): void {
    this.#end(new Error(what));
  }

  interrupt(): void {
    this.#end(new RunInterrupted('interrupted'));
  }

  /** 0 takes free ports, otherwise they follow each other. */
  get #ports(): number[] {
    const { port } = this.options;
    return Array.from({ length: REPLICAS }, (_, i) => (port === 0 ? 0 : port + i));
  }

  #unlessEnded<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#ended]);
  }
}
