import { formatMoney } from '../money/money.js';
import type { Invoice } from './invoice.entity.js';

/** What a payer is told, at the first call and at every repetition: plain data, so that it can be kept as it is. */
export interface Receipt {
  readonly invoiceId: string;
  /** For people, e.g. `12.50 EUR`. */
  readonly amount: string;
  /** ISO 8601. */
  readonly settledAt: string | null;
}

export function receiptFor({ id, amountMinor, currency, settledAt }: Invoice): Receipt {
  return { invoiceId: id, amount: formatMoney({ amountMinor, currency }), settledAt };
}
