import { decimalsOf } from './currencies.js';

/** An amount in whole minor units (cents, fils, yen). A bigint from the file to the account: money is never a float. */
export interface Money {
  readonly amountMinor: bigint;
  readonly currency: string;
}

/** Beyond any invoice, and within what a 64-bit column of the next system down the line can hold. */
const MOST_DIGITS = 18;

/** Why a text is no amount. `part` tells which of the two texts is at fault. */
export class MoneyError extends Error {
  override readonly name = 'MoneyError';

  constructor(
    readonly part: 'amount' | 'currency',
    message: string,
  ) {
    super(message);
  }
}

/**
 * Reads an amount such as `12.50`.
 *
 * @throws {MoneyError} the currency is unknown; the amount is not plain digits, not more than zero, or finer than the
 *   currency's smallest unit
 */
export function parseMoney(amount: string, currency: string): Money {
  const decimals = decimalsOf(currency);
  if (decimals === undefined) {
    throw new MoneyError('currency', `"${currency}" is not an ISO 4217 currency code`);
  }
  return { amountMinor: minorUnits(amount, decimals, currency), currency };
}

/** `12.50 EUR`, `1250 JPY`. */
export function formatMoney({ amountMinor, currency }: Money): string {
  const decimals = decimalsOf(currency) ?? 0;
  const sign = amountMinor < 0n ? '-' : '';
  const digits = String(amountMinor < 0n ? -amountMinor : amountMinor).padStart(decimals + 1, '0');
  const whole = digits.slice(0, digits.length - decimals);
  const fraction = decimals === 0 ? '' : `.${digits.slice(-decimals)}`;
  return `${sign}${whole}${fraction} ${currency}`;
}

/** Sums per currency. */
export function totals(amounts: Iterable<Money>): Map<string, bigint> {
  const sums = new Map<string, bigint>();
  for (const { amountMinor, currency } of amounts) {
    sums.set(currency, (sums.get(currency) ?? 0n) + amountMinor);
  }
  return sums;
}

function minorUnits(amount: string, decimals: number, currency: string): bigint {
  const [, minus, whole, fraction = ''] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(amount) ?? [];
  if (whole === undefined) {
    throw new MoneyError('amount', `"${amount}" is not an amount; write digits with a point, such as 12.50`);
  }
  if (fraction.length > decimals) {
    throw new MoneyError('amount', `"${amount}" has too many decimals: ${currency} has ${decimals}`);
  }
  const digits = (whole + fraction.padEnd(decimals, '0')).replace(/^0+/, '');
  if (minus || digits === '') throw new MoneyError('amount', `"${amount}" is not more than zero`);
  if (digits.length > MOST_DIGITS) throw new MoneyError('amount', `"${amount}" is too large`);
  return BigInt(digits);
}
