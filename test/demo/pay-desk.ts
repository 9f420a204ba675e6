import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { StoreChoice } from '../../apps/demo-billing/src/command-line/store-choice.js';
import type { Charge } from '../../apps/demo-billing/src/gateway/charge.js';
import { GatewayServer } from '../../apps/demo-billing/src/gateway/gateway-server.js';
import { Ledger } from '../../apps/demo-billing/src/gateway/ledger.js';
import type { FromReplica, ReplicaSettings } from '../../apps/demo-billing/src/http/main.js';
import type { InvoiceLine } from '../../apps/demo-billing/src/invoices/invoice-line.js';
import { SETTINGS_VARIABLE } from '../../apps/demo-billing/src/processes/child-side.js';
import { InvoiceBook } from '../../apps/demo-billing/src/storage/invoice-book.js';
import { storageFor } from '../../apps/demo-billing/src/storage/storage-settings.js';
import { startProxy, type TcpProxy } from '../servers/index.js';

const PROGRAM = join(__dirname, '../../dist/apps/demo-billing/http/main.js');

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly replayed: boolean;
}

export interface PayRequest {
  readonly id: string;
  readonly key?: string;
  readonly tenant?: string;
}

/** How long others wait for a process that has died. */
const LEASE_MS = 5_000;

const TENANT = 'Nordwind';

export function invoice(id: string, tenant = TENANT): InvoiceLine {
  return { id, tenant, customer: 'Ada', amountMinor: 1250n, currency: 'EUR', dueDate: '2025-01-01' };
}

/** Two processes of the demo's HTTP application on one store, with a gateway whose answers can be lost or late. */
export class PayDesk {
  readonly #folder = mkdtempSync(join(tmpdir(), 'pay-desk-'));
  readonly #ledger = new Ledger(join(this.#folder, 'ledger.jsonl'));
  readonly #replicas: Replica[] = [];
  #gateway!: GatewayServer;
  #path!: TcpProxy;
  #book!: InvoiceBook;
  #settings!: Omit<ReplicaSettings, 'port'>;

  async open(
    choice: StoreChoice,
    invoices: readonly InvoiceLine[],
    { loseAnswersOf = [], unsafe = false }: { loseAnswersOf?: readonly string[]; unsafe?: boolean },
  ): Promise<void> {
    const storage = storageFor(choice, this.#folder, `pay_${process.pid}`);
    this.#book = new InvoiceBook(storage);
    await this.#book.open(invoices);
    this.#gateway = new GatewayServer(this.#ledger, loseAnswersOf);
    this.#path = await startProxy(Number(new URL(await this.#gateway.listen()).port));
    const gatewayAddress = `http://127.0.0.1:${this.#path.port}`;
    this.#settings = { storage, gatewayAddress, leaseMs: LEASE_MS, waitMs: 2 * LEASE_MS, unsafe };
    await Promise.all([this.revive(0), this.revive(1)]);
  }

  /** Asks the first or the second process. */
  async pay(at: 0 | 1, { id, key, tenant = TENANT }: PayRequest): Promise<Answer> {
    const response = await fetch(`${this.#replica(at).address}/invoices/${encodeURIComponent(id)}/pay`, {
      method: 'POST',
      headers: { 'X-Tenant': tenant, ...(key === undefined ? {} : { 'Idempotency-Key': key }) },
    });
    const replayed = response.headers.get('idempotent-replayed') === 'true';
    return { status: response.status, text: await response.text(), replayed };
  }

  /** As a client does that is told "in progress": it asks again with the same key, until it gets an answer. */
  async payPatiently(at: 0 | 1, request: PayRequest, withinMs: number): Promise<Answer> {
    const givesUpAtMs = performance.now() + withinMs;
    for (;;) {
      const answer = await this.pay(at, request);
      if (answer.status !== 409 || performance.now() > givesUpAtMs) return answer;
      await new Promise((wake) => setTimeout(wake, 100));
    }
  }

  chargesOf(id: string): readonly Charge[] {
    return this.#ledger.report().charges.filter(({ invoiceId }) => invoiceId === id);
  }

  /** Pays at the first process, and kills it once the gateway has charged and before it can know. */
  async dieAfterCharge(request: PayRequest): Promise<void> {
    const charged = this.#ledger.report().charges.length;
    this.#path.delayReplies(60_000);
    const cutOff = this.pay(0, request).catch(() => 'cut off');
    while (this.#ledger.report().charges.length === charged) await new Promise((wake) => setTimeout(wake, 5));
    await this.#replica(0).kill();
    this.#path.delayReplies(0);
    if ((await cutOff) !== 'cut off') throw new Error('The process answered before it was killed.');
  }

  /** Starts the first or the second process, anew if there was one. */
  async revive(at: 0 | 1): Promise<void> {
    const replica = new Replica({ ...this.#settings, port: 0 });
    this.#replicas[at] = replica;
    await replica.listening();
  }

  async close(): Promise<void> {
    await Promise.all(this.#replicas.map((each) => each.kill()));
    await this.#path.stop();
    await this.#gateway.close();
    this.#ledger.close();
    await this.#book.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #replica(at: 0 | 1): Replica {
    return this.#replicas[at] as Replica;
  }
}

class Replica {
  address = '';
  readonly #child: ChildProcess;

  constructor(settings: ReplicaSettings) {
    const env = { ...process.env, [SETTINGS_VARIABLE]: JSON.stringify(settings) };
    this.#child = fork(PROGRAM, { env, stdio: ['ignore', 'ignore', 'inherit', 'ipc'], execArgv: [] });
  }

  async listening(): Promise<void> {
    const [message] = (await once(this.#child, 'message')) as [FromReplica];
    if (message.kind !== 'listening') throw new Error(JSON.stringify(message));
    this.address = message.address;
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await gone;
  }
}
