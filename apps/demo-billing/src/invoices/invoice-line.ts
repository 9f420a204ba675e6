import { MoneyError, parseMoney, type Money } from '../money/money.js';

export const COLUMNS = ['id', 'tenant', 'customer', 'amount', 'currency', 'due_date'] as const;
export type Column = (typeof COLUMNS)[number];

/** One invoice as the file has it. */
export interface InvoiceLine extends Money {
  readonly id: string;
  readonly tenant: string;
  readonly customer: string;
  /** YYYY-MM-DD */
  readonly dueDate: string;
}

/** What is wrong with one field of an invoice. */
export class FieldError extends Error {
  override readonly name = 'FieldError';

  constructor(
    readonly column: Column,
    message: string,
  ) {
    super(`${column} ${message}`);
  }
}

/** With every character escaped, the lock key of the invoice still fits. */
const LONGEST_ID = 100;

/**
 * @param fields in the order of {@link COLUMNS}
 * @throws {FieldError} a value cannot be used
 */
export function parseInvoiceLine(fields: readonly string[]): InvoiceLine {
  const [id = '', tenant = '', customer = '', amount = '', currency = '', dueDate = ''] = fields;
  requireText('id', id);
  if (/\p{Cc}/u.test(id)) throw new FieldError('id', 'contains a control character');
  if (id.length > LONGEST_ID) throw new FieldError('id', `is longer than ${LONGEST_ID} characters`);
  requireText('tenant', tenant);
  requireText('customer', customer);
  requireDate(dueDate);
  return { id, tenant, customer, ...money(amount, currency), dueDate };
}

function money(amount: string, currency: string): Money {
  try {
    return parseMoney(amount, currency);
  } catch (error) {
    if (error instanceof MoneyError) throw new FieldError(error.part, error.message);
    throw error;
  }
}

function requireText(column: Column, text: string): void {
  if (text.trim() === '') throw new FieldError(column, 'is empty');
  // A database that ends its strings with it would take no such text.
  if (text.includes('\0')) throw new FieldError(column, 'contains a zero byte');
}

function requireDate(text: string): void {
  const date = /^\d{4}-\d{2}-\d{2}$/.test(text) ? new Date(`${text}T00:00:00Z`) : null;
  // Date rolls the 31st of a short month over into the next one.
  if (date && !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text)) return;
  throw new FieldError('due_date', `"${text}" is not a date; write YYYY-MM-DD`);
}
