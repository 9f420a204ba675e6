import { InputError } from '../command-line/input-error.js';
import type { StoreChoice } from '../command-line/store-choice.js';
import type { InvoiceLine } from '../invoices/invoice-line.js';
import { InvoiceBook } from '../storage/invoice-book.js';
import { requireRedis } from '../storage/reachable-redis.js';
import type { StorageSettings } from '../storage/storage-settings.js';

/**
 * The tables, laid out with these invoices.
 *
 * @throws {InputError} the store that was chosen cannot be used
 */
export async function openBook(
  storage: StorageSettings,
  invoices: readonly InvoiceLine[],
  chosen: StoreChoice,
): Promise<InvoiceBook> {
  const book = new InvoiceBook(storage);
  try {
    if (storage.locks.kind === 'redis') await requireRedis(storage.locks.url);
    await book.open(invoices);
    return book;
  } catch (error) {
    const advice = chosen.kind === 'embedded' ? '' : '; check --store, or leave it out';
    throw new InputError(`the store cannot be used: ${reasonOf(error)}${advice}`);
  }
}

/** In one line. A connection that failed on several addresses says it in its parts only. */
export function reasonOf(error: unknown): string {
  const [part = error] = error instanceof AggregateError ? (error.errors as unknown[]) : [];
  return (part instanceof Error ? part.message : String(part)).replace(/\s+/g, ' ');
}
