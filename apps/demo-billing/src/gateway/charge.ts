import type { Money } from '../money/money.js';

/** What a caller asks of the gateway: to pay this invoice. */
export interface ChargeRequest extends Money {
  readonly invoiceId: string;
  /** Proof of a lock on the invoice: a call with a lower one than was seen before comes from a former owner. */
  readonly fencingToken?: number | undefined;
  /** Names the payment: asked for twice, it is made once. */
  readonly idempotencyKey?: string | undefined;
}

/** Money that has moved. */
export interface Charge extends Money {
  readonly chargeId: string;
  readonly invoiceId: string;
}

/** What the gateway knows at the end. */
export interface LedgerReport {
  readonly charges: readonly Charge[];
  /** Calls that named a payment which had been made: answered, and not charged again. */
  readonly duplicatesPrevented: number;
  /** Calls that came with a lower fencing token than the invoice had seen before: refused. */
  readonly staleCallsRefused: number;
}

/** JSON has no bigint, and its numbers are floats: whole minor units travel as text. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) => (typeof each === 'bigint' ? String(each) : each));
}

/** @throws {TypeError} a field is missing or of another type */
export function parseChargeRequest(json: string): ChargeRequest {
  const { invoiceId, amountMinor, currency, fencingToken, idempotencyKey } = parseObject(json);
  if (typeof invoiceId !== 'string' || invoiceId === '') throw new TypeError('invoiceId must be text');
  if (typeof currency !== 'string' || currency === '') throw new TypeError('currency must be text');
  if (fencingToken !== undefined && !Number.isSafeInteger(fencingToken)) {
    throw new TypeError('fencingToken must be a whole number');
  }
  if (idempotencyKey !== undefined && (typeof idempotencyKey !== 'string' || idempotencyKey === '')) {
    throw new TypeError('idempotencyKey must be text');
  }
  return {
    invoiceId,
    amountMinor: parseMinor(amountMinor),
    currency,
    fencingToken: fencingToken as number | undefined,
    idempotencyKey,
  };
}

/** @throws {TypeError} this is no report */
export function parseLedgerReport(json: string): LedgerReport {
  const { charges, duplicatesPrevented, staleCallsRefused } = parseObject(json);
  if (!Array.isArray(charges)) throw new TypeError('charges must be a list');
  return {
    charges: charges.map((each: Charge) => ({ ...each, amountMinor: parseMinor(each.amountMinor) })),
    duplicatesPrevented: Number(duplicatesPrevented),
    staleCallsRefused: Number(staleCallsRefused),
  };
}

function parseMinor(value: unknown): bigint {
  if (typeof value === 'string' && /^[1-9]\d*$/.test(value)) return BigInt(value);
  throw new TypeError('amountMinor must be whole minor units as text, more than zero');
}

function parseObject(json: string): Readonly<Record<string, unknown>> {
  const value: unknown = JSON.parse(json);
  if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
  throw new TypeError('an object was expected');
}
