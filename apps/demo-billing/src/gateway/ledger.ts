import { randomUUID } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fdatasyncSync,
  openSync,
  readFileSync,
  truncateSync,
  writeSync,
} from 'node:fs';

import { parseChargeRequest, toJson, type Charge, type ChargeRequest, type LedgerReport } from './charge.js';

export type ChargeAnswer =
  | { readonly kind: 'charged' | 'replayed'; readonly charge: Charge }
  /** A newer owner of the invoice was here before. */
  | { readonly kind: 'stale'; readonly highestToken: number }
  /** The idempotency key names another payment. */
  | { readonly kind: 'key-reused' };

/** One line of the ledger's file: a request, and what came of it. */
interface Entry {
  readonly request: ChargeRequest;
  readonly outcome: ChargeAnswer['kind'];
  readonly chargeId: string | null;
}

/**
 * What was charged, in a file that only grows. Every answer is on disk before it is given, so that a gateway that comes
 * back remembers payments, keys and tokens alike.
 */
export class Ledger {
  readonly #charges: Charge[] = [];
  readonly #byKey = new Map<string, { readonly request: ChargeRequest; readonly charge: Charge }>();
  readonly #highestToken = new Map<string, number>();
  #duplicatesPrevented = 0;
  #staleCallsRefused = 0;
  readonly #file: number;

  constructor(file: string) {
    for (const line of wholeLines(file)) this.#remember(parseEntry(line));
    this.#file = openSync(file, 'a');
  }

  /** Checks the token first, then the key; only a call that is neither stale nor a repetition moves money. */
  charge(request: ChargeRequest): ChargeAnswer {
    const answer = this.#decide(request);
    const chargeId = 'charge' in answer ? answer.charge.chargeId : null;
    this.#write({ request, outcome: answer.kind, chargeId });
    return answer;
  }

  report(): LedgerReport {
    return {
      charges: [...this.#charges],
      duplicatesPrevented: this.#duplicatesPrevented,
      staleCallsRefused: this.#staleCallsRefused,
    };
  }

  close(): void {
    closeSync(this.#file);
  }

  #decide(request: ChargeRequest): ChargeAnswer {
    const { invoiceId, amountMinor, currency, fencingToken, idempotencyKey } = request;
    const highestToken = this.#highestToken.get(invoiceId);
    if (fencingToken !== undefined && highestToken !== undefined && fencingToken < highestToken) {
      return { kind: 'stale', highestToken };
    }
    const known = idempotencyKey === undefined ? undefined : this.#byKey.get(idempotencyKey);
    if (!known)
      return { kind: 'charged', charge: { chargeId: randomUUID(), invoiceId, amountMinor, currency } };
    return samePayment(known.request, request)
      ? { kind: 'replayed', charge: known.charge }
      : { kind: 'key-reused' };
  }

  #write(entry: Entry): void {
    writeSync(this.#file, `${toJson(entry)}\n`);
    fdatasyncSync(this.#file);
    this.#remember(entry);
  }

  #remember({ request, outcome, chargeId }: Entry): void {
    const { invoiceId, amountMinor, currency, fencingToken, idempotencyKey } = request;
    if (outcome === 'stale') this.#staleCallsRefused += 1;
    else if (fencingToken !== undefined) this.#highestToken.set(invoiceId, fencingToken);
    if (outcome === 'replayed') this.#duplicatesPrevented += 1;
    if (outcome !== 'charged' || chargeId === null) return;
    const charge = { chargeId, invoiceId, amountMinor, currency };
    this.#charges.push(charge);
    if (idempotencyKey !== undefined) this.#byKey.set(idempotencyKey, { request, charge });
  }
}

/** What stands behind the last line end was cut off by a crash, before anybody was answered: it is dropped. */
function wholeLines(file: string): string[] {
  if (!existsSync(file)) return [];
  const written = readFileSync(file, 'utf8');
  const whole = written.slice(0, written.lastIndexOf('\n') + 1);
  if (whole !== written) truncateSync(file, Buffer.byteLength(whole));
  return whole.split('\n').slice(0, -1);
}

function parseEntry(line: string): Entry {
  const { request, outcome, chargeId } = JSON.parse(line) as Entry;
  return { request: parseChargeRequest(JSON.stringify(request)), outcome, chargeId };
}

function samePayment(one: ChargeRequest, other: ChargeRequest): boolean {
  return (
    one.invoiceId === other.invoiceId &&
    one.amountMinor === other.amountMinor &&
    one.currency === other.currency
  );
}
