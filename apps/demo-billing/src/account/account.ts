import type { InvoiceStatus } from '../billing/invoice.entity.js';
import type { Charge, LedgerReport } from '../gateway/charge.js';
import type { InvoiceLine } from '../invoices/invoice-line.js';
import { formatMoney, totals } from '../money/money.js';
import type { RunJournal } from '../run/run-journal.js';

/** What a run came to: from the gateway's ledger, the database and the journal, not from what workers believe. */
export interface Account {
  readonly invoices: number;
  /** Invoices that the database calls SETTLED. */
  readonly settled: number;
  readonly charges: number;
  /** Charges beyond the first one of an invoice. */
  readonly doubleCharges: number;
  readonly doublyCharged: readonly { readonly invoiceId: string; readonly times: number }[];
  /** What was charged, in whole minor units per currency. */
  readonly totalsMinor: ReadonlyMap<string, bigint>;
  /** Writes and calls of former owners that came to nothing, by who refused them. */
  readonly refusals: {
    readonly leaseCheck: number;
    readonly databaseGuard: number;
    readonly gatewayToken: number;
  };
  /** Calls that the gateway has answered by their idempotency key, without charging again. */
  readonly duplicatesPrevented: number;
  readonly repetitions: Repetitions;
  readonly takeOvers: number;
  readonly pauses: number;
  readonly kills: number;
  readonly durationMs: number;
  /** What else is wrong. */
  readonly problems: readonly string[];
}

/** What became of messages that came again, and of payouts that were begun again. */
export interface Repetitions {
  readonly messages: number;
  /** Deliveries that were answered from the record. */
  readonly replayed: number;
  /** Deliveries that met the same payout at work elsewhere: not acknowledged, and delivered again. */
  readonly inProgress: number;
  readonly furtherAttempts: number;
  /** Invoices that are paid by the word of the store of records. */
  readonly paidOut: number;
}

export interface Evidence {
  readonly invoices: readonly InvoiceLine[];
  readonly messages: number;
  readonly ledger: LedgerReport;
  readonly statuses: ReadonlyMap<string, InvoiceStatus>;
  readonly paidOut: number;
  readonly journal: RunJournal;
  readonly durationMs: number;
}

export function drawUpAccount(evidence: Evidence): Account {
  const { invoices, ledger, statuses, journal, durationMs } = evidence;
  const charges = chargesByInvoice(ledger.charges);
  const doublyCharged = [...charges]
    .filter(([, list]) => list.length > 1)
    .map(([invoiceId, list]) => ({ invoiceId, times: list.length }));
  return {
    invoices: invoices.length,
    settled: invoices.filter(({ id }) => statuses.get(id) === 'SETTLED').length,
    charges: ledger.charges.length,
    doubleCharges: ledger.charges.length - charges.size,
    doublyCharged,
    totalsMinor: totals(ledger.charges),
    refusals: {
      leaseCheck: journal.refusals('lease-check'),
      databaseGuard: journal.refusals('database-guard'),
      gatewayToken: ledger.staleCallsRefused,
    },
    duplicatesPrevented: ledger.duplicatesPrevented,
    repetitions: repetitionsIn(evidence),
    takeOvers: journal.takeOvers,
    pauses: journal.pauses,
    kills: journal.kills,
    durationMs: Math.round(durationMs),
    problems: [
      ...journal.incidents,
      ...invoices.flatMap((invoice) => chargeProblems(invoice, charges.get(invoice.id) ?? [])),
      ...invoices.flatMap(({ id }) => statusProblems(id, statuses.get(id))),
      ...strangers(invoices, charges),
    ],
  };
}

/** Every invoice charged exactly once, with the right amount and currency, and SETTLED; and nothing else happened. */
export function addsUp({ doubleCharges, problems }: Account): boolean {
  return doubleCharges === 0 && problems.length === 0;
}

export function staleWritesRefused({ refusals }: Account): number {
  return refusals.leaseCheck + refusals.databaseGuard + refusals.gatewayToken;
}

function repetitionsIn({ messages, paidOut, journal }: Evidence): Repetitions {
  const { replays: replayed, inProgress, furtherAttempts } = journal;
  return { messages, replayed, inProgress, furtherAttempts, paidOut };
}

function chargesByInvoice(charges: readonly Charge[]): Map<string, Charge[]> {
  const byInvoice = new Map<string, Charge[]>();
  for (const charge of charges) {
    byInvoice.set(charge.invoiceId, [...(byInvoice.get(charge.invoiceId) ?? []), charge]);
  }
  return byInvoice;
}

function chargeProblems(invoice: InvoiceLine, charges: readonly Charge[]): string[] {
  if (charges.length === 0) return [`invoice ${invoice.id} was never charged`];
  const due = formatMoney(invoice);
  return charges
    .map(formatMoney)
    .filter((charged) => charged !== due)
    .map((charged) => `invoice ${invoice.id} was charged ${charged} instead of ${due}`);
}

function statusProblems(id: string, status: InvoiceStatus | undefined): string[] {
  return status === 'SETTLED' ? [] : [`invoice ${id} is ${status ?? 'gone'} in the database`];
}

function strangers(invoices: readonly InvoiceLine[], charges: ReadonlyMap<string, unknown>): string[] {
  const known = new Set(invoices.map(({ id }) => id));
  return [...charges.keys()].filter((id) => !known.has(id)).map((id) => `nobody asked to charge ${id}`);
}
