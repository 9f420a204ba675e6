import { hasCode } from 'nestjs-distributed-lock';

import { InputError } from '../command-line/input-error.js';
import type { StoreChoice } from '../command-line/store-choice.js';
import type { InvoiceLine } from '../invoices/invoice-line.js';
import { InvoiceBook } from '../storage/invoice-book.js';
import { leaseTimes, type LeaseTimes } from '../storage/lease-times.js';
import { shortestLeaseMs } from '../storage/shortest-lease.js';
import type { StorageSettings } from '../storage/storage-settings.js';

/** The tables, laid out, and how long leases last in the stores beside them. */
export interface OpenedBook {
  readonly book: InvoiceBook;
  readonly times: LeaseTimes;
}

/**
 * The tables, laid out with these invoices. Leases last `wishedLeaseMs` where the store can have it so.
 *
 * @throws {InputError} the store that was chosen cannot be used; nothing was left in it
 */
export async function openBook(
  storage: StorageSettings,
  invoices: readonly InvoiceLine[],
  chosen: StoreChoice,
  wishedLeaseMs: number,
): Promise<OpenedBook> {
  const book = new InvoiceBook(storage);
  try {
    await book.open(invoices);
    const shortestMs = await shortestLeaseMs(storage);
    return { book, times: leaseTimes(storage.locks.kind, wishedLeaseMs, shortestMs) };
  } catch (error) {
    await book.close().catch(() => undefined); // what went wrong first is what helps
    const advice = chosen.kind === 'embedded' ? '' : '; check --store, or leave it out';
    throw new InputError(`the store cannot be used: ${reasonOf(error)}${advice}`);
  }
}

/** In one line. */
export function reasonOf(error: unknown): string {
  if (hasCode(error, 'LOCK_CONFIG_INVALID')) return messageOf(error).replace(/\.$/, '');
  const root = messageOf(rootOf(error));
  if (!hasCode(error, 'STORE_UNAVAILABLE')) return root;
  const [said = ''] = messageOf(error).split('. '); // where the store is; the rest is for applications
  return said.includes(root) ? said : `${said}: ${root}`;
}

/** What the network said. A connection that failed on several addresses has it in its parts, a cluster in its last node. */
function rootOf(error: unknown): unknown {
  const { cause, lastNodeError, errors = [] } = (error ?? {}) as Told;
  const within = errors[0] ?? lastNodeError ?? cause;
  return within == null ? error : rootOf(within);
}

interface Told {
  readonly message?: string;
  readonly cause?: unknown;
  readonly lastNodeError?: unknown;
  readonly errors?: readonly unknown[];
}

function messageOf(error: unknown): string {
  return ((error as Told | null)?.message ?? String(error)).replace(/\s+/g, ' ');
}
