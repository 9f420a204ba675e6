import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { addsUp } from './account/account.js';
import { accountJson } from './account/account-json.js';
import { accountText } from './account/account-text.js';
import { HELP, readOptions } from './command-line/demo-options.js';
import { InputError } from './command-line/input-error.js';
import { readInvoiceFile } from './invoices/invoice-file.js';
import type { BillingRun } from './run/billing-run.js';
import { Progress } from './run/progress.js';
import { RunInterrupted } from './run/run-interrupted.js';
import { storageFor } from './storage/storage-settings.js';

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
  const { BillingRun } = await import('./run/billing-run.js'); // databases and all: not for a mistyped option
  const run = new BillingRun(options, invoices, new Progress(process.stderr));
  endWithSignals(run);
  const folder = temporaryFolder();
  const storage = storageFor(options.store, folder, randomBytes(4).toString('hex'));
  const account = await run.settleAll(storage, folder);
  process.stdout.write(accountText(account, options));
  if (options.json) process.stdout.write(`${accountJson(account)}\n`);
  return addsUp(account) ? 0 : EXIT_FAILED;
}

/** It goes with this process, however that ends. */
function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'demo-billing-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The first signal ends the run in good order, a later one at once. One keystroke may arrive twice, by way of npm. */
function endWithSignals(run: BillingRun): void {
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
