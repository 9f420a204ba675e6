import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';

import { parseLedgerReport, type LedgerReport } from '../gateway/charge.js';
import type { FromGateway, GatewaySettings } from '../gateway/main.js';
import { exited, startChild } from '../processes/parent-side.js';

const GATEWAY_PROGRAM = new URL('../gateway/main.js', import.meta.url);
const LEDGER_WITHIN_MS = 10_000;

/** The payment gateway: a process of its own with a ledger of its own, as it belongs to another company. */
export class GatewayProcess {
  readonly #child: ChildProcess;
  #stopping = false;
  #address = '';

  /** `onFailure` hears of it when the gateway ends on its own: without its ledger there is no account. */
  constructor(settings: GatewaySettings, onFailure: (what: string) => void) {
    this.#child = startChild(GATEWAY_PROGRAM, settings);
    this.#child.on('message', (message: FromGateway) => {
      if (message.kind === 'unhandled') onFailure(`the gateway failed: ${message.message}`);
    });
    this.#child.once('exit', (code, signal) => {
      if (!this.#stopping) onFailure(`the gateway ended by itself (${signal ?? `exit code ${code}`})`);
    });
  }

  /** Resolves with its address once it takes requests. */
  async listening(): Promise<string> {
    const [message] = (await once(this.#child, 'message')) as [FromGateway];
    if (message.kind !== 'listening') throw new Error(`The gateway did not start: ${message.message}`);
    this.#address = message.address;
    return message.address;
  }

  async ledger(): Promise<LedgerReport> {
    const response = await fetch(`${this.#address}/ledger`, {
      signal: AbortSignal.timeout(LEDGER_WITHIN_MS),
    });
    return parseLedgerReport(await response.text());
  }

  /** Nothing is lost by it: every answer was on disk before it was given. */
  async stop(): Promise<void> {
    this.#stopping = true;
    const gone = exited(this.#child);
    this.#child.kill('SIGKILL');
    await gone;
  }
}
