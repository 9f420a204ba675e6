import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { addsUp } from './account/account.js';
import { accountJson } from './account/account-json.js';
import { accountText } from './account/account-text.js';
import { HELP, readOptions, type DemoOptions } from './command-line/demo-options.js';
import { InputError } from './command-line/input-error.js';
import type { StoreChoice } from './command-line/store-choice.js';
import { readInvoiceFile } from './invoices/invoice-file.js';
import type { InvoiceLine } from './invoices/invoice-line.js';
import type { BillingRun } from './run/billing-run.js';
import { Progress } from './run/progress.js';
import { RunInterrupted } from './run/run-interrupted.js';
import type { ServeOptions } from './serve/billing-server.js';
import { storageFor, type StorageSettings } from './storage/storage-settings.js';

const EXIT_UNUSABLE = 2;
const EXIT_FAILED = 1;
/** As a shell reports a program that Ctrl-C has ended. */
const EXIT_INTERRUPTED = 130;
const SAME_KEYSTROKE_MS = 500;

async function main(args: readonly string[]): Promise<number> {
  const options = readOptions(args);
  if (options === 'help') {
    process.stdout.write(HELP);
    return 0;
  }
  const invoices = readInvoiceFile(options.input);
  const { servePort: port } = options;
  return port === null ? settle(options, invoices) : serve({ ...options, port }, invoices);
}

async function settle(options: DemoOptions, invoices: readonly InvoiceLine[]): Promise<number> {
  const { BillingRun } = await import('./run/billing-run.js'); // databases and all: not for a mistyped option
  const run = new BillingRun(options, invoices, new Progress(process.stderr));
  endWithSignals(run);
  const account = await run.settleAll(...place(options.store));
  process.stdout.write(accountText(account, options));
  if (options.json) process.stdout.write(`${accountJson(account)}\n`);
  return addsUp(account) ? 0 : EXIT_FAILED;
}

async function serve(options: ServeOptions, invoices: readonly InvoiceLine[]): Promise<number> {
  const { BillingServer } = await import('./serve/billing-server.js');
  const server = new BillingServer(options, invoices, (text) => process.stdout.write(text));
  endWithSignals(server);
  return server.serve(...place(options.store));
}

function place(store: StoreChoice): [StorageSettings, string] {
  const folder = temporaryFolder();
  return [storageFor(store, folder, randomBytes(4).toString('hex')), folder];
}

/** It goes with this process, however that ends. */
function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'demo-billing-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The first signal ends the run in good order, a later one at once. One keystroke may arrive twice, by way of npm. */
function endWithSignals(run: Pick<BillingRun, 'interrupt' | 'fail'>): void {
  let firstAtMs = Infinity;
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (performance.now() - firstAtMs > SAME_KEYSTROKE_MS) process.exit(EXIT_INTERRUPTED);
      firstAtMs = Math.min(firstAtMs, performance.now());
      run.interrupt();
    });
  }
  for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
    process.on(event, (error) =>
      run.fail(`the coordinator met an error that nobody handled: ${String(error)}`),
    );
  }
}

function exitCodeFor(error: unknown): number {
  if (error instanceof RunInterrupted) return EXIT_INTERRUPTED;
  process.stderr.write(`${error instanceof InputError ? error.message : String(error)}\n`);
  return error instanceof InputError ? EXIT_UNUSABLE : EXIT_FAILED;
}

process.exitCode = await main(process.argv.slice(2)).catch(exitCodeFor);
