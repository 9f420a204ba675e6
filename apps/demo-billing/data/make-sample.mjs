// Writes invoices.csv, the sample that the demo settles by default: node apps/demo-billing/data/make-sample.mjs
// The same numbers every time. Made to be awkward: currencies with 0, 2 and 3 decimals, ids with separators, spaces and
// letters of several scripts, fields that need quotes.
import { writeFileSync } from 'node:fs';

const INVOICES = 240;

const TENANTS = [
  { name: 'Nordwind GmbH', currencies: ['EUR', 'EUR', 'CHF'], id: (n) => `NW-2025-${pad(n)}` },
  { name: 'Sakura 商事', currencies: ['JPY'], id: (n) => `請求書-${pad(n)}` },
  { name: 'Gulf Trading Co.', currencies: ['KWD', 'BHD', 'USD'], id: (n) => `GTC/2025/${pad(n)}` },
  { name: 'Acme, Inc.', currencies: ['USD', 'USD', 'CAD'], id: (n) => `acme:invoice:${n}` },
  { name: 'Řeka s.r.o.', currencies: ['CZK', 'EUR'], id: (n) => `Faktura č. ${n}` },
  { name: 'Заря', currencies: ['EUR', 'KZT'], id: (n) => `счёт ${n}/2025` },
];

const CUSTOMERS = [
  'Ada Lovelace',
  'Smith, Jones & Sons',
  'The "Blue Door" Café',
  'José Álvarez',
  '山田 太郎',
  'Zoë\'s "Books, Maps" Ltd.',
  'ООО Ромашка',
  'Müller & Söhne',
];

const DECIMALS = { JPY: 0, KWD: 3, BHD: 3 };

let state = 20250101;
/** A whole number below `limit` (Park and Miller's generator: small, and the same everywhere). */
function random(limit) {
  state = (state * 48271) % 2147483647;
  return state % limit;
}

function pick(list) {
  return list[random(list.length)];
}

function pad(n) {
  return String(n).padStart(4, '0');
}

function amount(currency) {
  const decimals = DECIMALS[currency] ?? 2;
  const digits = String(1 + random(900_000)).padStart(decimals + 1, '0');
  return decimals === 0 ? digits : `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}

function quoted(field) {
  return /[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field;
}

const rows = Array.from({ length: INVOICES }, (_, i) => {
  const tenant = TENANTS[i % TENANTS.length];
  const currency = pick(tenant.currencies);
  const dueDate = new Date(Date.UTC(2025, 0, 1 + random(365))).toISOString().slice(0, 10);
  return [tenant.id(i + 1), tenant.name, pick(CUSTOMERS), amount(currency), currency, dueDate];
});

const lines = [['id', 'tenant', 'customer', 'amount', 'currency', 'due_date'], ...rows];
writeFileSync(
  new URL('invoices.csv', import.meta.url),
  lines.map((line) => `${line.map(quoted).join(',')}\n`).join(''),
);
