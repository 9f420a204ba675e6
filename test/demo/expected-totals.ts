import { readFileSync } from 'node:fs';

import { parse } from 'csv-parse/sync';

const DECIMALS: Readonly<Record<string, number>> = { JPY: 0, KWD: 3, BHD: 3 };

/** What the invoices of a file come to, in whole minor units per currency: reckoned here, not by the demo. */
export function expectedTotals(file: string): {
  readonly count: number;
  readonly totalsMinor: Record<string, string>;
} {
  const rows = parse(readFileSync(file), { columns: true }) as unknown as {
    amount: string;
    currency: string;
  }[];
  const sums = new Map<string, bigint>();
  for (const { amount, currency } of rows) {
    const [whole = '', fraction = ''] = amount.split('.');
    const minor = BigInt(whole + fraction.padEnd(DECIMALS[currency] ?? 2, '0'));
    sums.set(currency, (sums.get(currency) ?? 0n) + minor);
  }
  const totalsMinor = Object.fromEntries([...sums].map(([currency, minor]) => [currency, String(minor)]));
  return { count: rows.length, totalsMinor };
}
