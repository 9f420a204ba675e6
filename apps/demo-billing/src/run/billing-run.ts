import { join } from 'node:path';

import { drawUpAccount, type Account } from '../account/account.js';
import type { DemoOptions } from '../command-line/demo-options.js';
import { planFaults, type FaultPlan } from '../faults/fault-plan.js';
import type { InvoiceLine } from '../invoices/invoice-line.js';
import type { StorageSettings } from '../storage/storage-settings.js';
import type { FromWorker } from '../worker/messages.js';
import type { WorkerSettings } from '../worker/worker-settings.js';
import { Dispatcher } from './dispatcher.js';
import { GatewayProcess } from './gateway-process.js';
import { openBook, reasonOf } from './open-book.js';
import type { Progress } from './progress.js';
import { RunInterrupted } from './run-interrupted.js';
import { RunJournal } from './run-journal.js';
import { runTimes, WISHED_LEASE_MS, type RunTimes } from './run-times.js';
import { StallWatch } from './stall-watch.js';
import { WorkerDeaths } from './worker-deaths.js';
import { WorkerPool } from './worker-pool.js';
import type { WorkerProcess } from './worker-process.js';

const GOODBYE_WITHIN_MS = 3_000;

/** One run: a gateway, a number of workers, and every invoice through their hands. */
export class BillingRun {
  readonly #journal = new RunJournal();
  readonly #plan: FaultPlan;
  readonly #ended = new AbortController();
  #interrupted = false;

  constructor(
    private readonly options: DemoOptions,
    private readonly invoices: readonly InvoiceLine[],
    private readonly progress: Progress,
  ) {
    this.#plan = planFaults(options.seed, this.#invoiceIds, options.faults);
  }

  /**
   * `folder` is the run's own and takes the gateway's ledger.
   *
   * @throws {InputError} the store cannot be used; no process was started
   * @throws {RunInterrupted} after {@link interrupt}; no process is left
   */
  async settleAll(storage: StorageSettings, folder: string): Promise<Account> {
    const startedAtMs = performance.now();
    const { book, times } = await openBook(storage, this.invoices, this.options.store, WISHED_LEASE_MS);
    const ledgerFile = join(folder, 'ledger.jsonl');
    const gateway = new GatewayProcess({ ledgerFile, loseAnswersOf: [...this.#plan.lostAnswers] }, (what) =>
      this.fail(what),
    );
    try {
      const gatewayAddress = await this.#unlessEnded(gateway.listening());
      const { unsafe } = this.options;
      if (gatewayAddress) await this.#work({ storage, gatewayAddress, ...times, unsafe }, runTimes(times));
      if (this.#interrupted) throw new RunInterrupted('interrupted');
      return drawUpAccount({
        invoices: this.invoices,
        messages: this.#messages.length,
        ledger: await gateway.ledger(),
        statuses: await book.statuses(),
        paidOut: await book.paidOut(this.#invoiceIds),
        journal: this.#journal,
        durationMs: performance.now() - startedAtMs,
      });
    } finally {
      await gateway.stop();
      await book.close().catch((error: unknown) => this.progress.note(`not cleaned up: ${reasonOf(error)}`));
    }
  }

  /** Ends the run early. There will be an account, and it says why. */
  fail(incident: string): void {
    this.#journal.incidents.push(incident);
    this.#ended.abort();
  }

  /** Ends the run early and without an account. */
  interrupt(): void {
    this.#interrupted = true;
    this.#ended.abort();
  }

  async #work(settings: WorkerSettings, { stalledAfterMs, ...times }: RunTimes): Promise<void> {
    const deaths = new WorkerDeaths(
      (what) => this.#journal.incidents.push(what),
      (what) => this.fail(what),
    );
    const stall = new StallWatch(stalledAfterMs, () =>
      this.fail(`no invoice was settled for ${stalledAfterMs / 1_000} s`),
    );
    const pool = new WorkerPool(this.options.workers, settings, {
      said: (worker, message) => {
        if (message.kind === 'settled') stall.progress();
        hear(deaths, worker, message);
        dispatcher.said(worker, message);
        this.#show();
      },
      died: (worker, how) => {
        deaths.died(worker, how);
        dispatcher.died(worker);
      },
    });
    const dispatcher = new Dispatcher(pool, this.#journal, {
      messages: this.#messages,
      strikes: this.#plan.strikes,
      ...times,
    });
    pool.start();
    await this.#unlessEnded(dispatcher.finished());
    stall.stop();
    dispatcher.stop();
    this.progress.end();
    await pool.stop(this.#ended.signal.aborted ? 0 : GOODBYE_WITHIN_MS);
  }

  /** Undefined when the run ended first. */
  async #unlessEnded<T>(work: Promise<T>): Promise<T | undefined> {
    const { signal } = this.#ended;
    if (signal.aborted) return undefined;
    const ended = new Promise<undefined>((resolve) =>
      signal.addEventListener('abort', () => resolve(undefined), { once: true }),
    );
    return Promise.race([work, ended]);
  }

  #show(): void {
    const { settledInvoices: settled, pauses, kills } = this.#journal;
    this.progress.show({ settled, invoices: this.invoices.length, pauses, kills });
  }

  get #invoiceIds(): string[] {
    return this.invoices.map(({ id }) => id);
  }

  /** Each of them comes twice, and both may be out at the same time: no queue promises more than "at least once". */
  get #messages(): string[] {
    return this.#invoiceIds.flatMap((id) => [id, id]);
  }
}

function hear(deaths: WorkerDeaths, worker: WorkerProcess, message: FromWorker): void {
  if (message.kind === 'ready') deaths.ready();
  if (message.kind === 'not-started') deaths.notStarted(message.reason);
  if (message.kind === 'unhandled') deaths.unhandled(worker, message.message);
}
