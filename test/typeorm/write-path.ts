import type { ObjectLiteral, Repository } from 'typeorm';

import { Invoice, InvoiceLine } from './invoices.js';
import type { Owner } from './owners.js';

/** One way in which TypeORM writes a row of invoice `id`. */
export interface WritePath {
  /** Where it stands in the documentation. */
  readonly group: string;
  readonly name: string;
  /** `guarded`: passes with the current token only. `refused`: never passes, whatever token there is. */
  readonly is: 'guarded' | 'refused';
  /** What to use instead of one that is refused. */
  readonly instead?: string;
  /** Under the lock of another row. Default: only the database finds out, `FENCED_OUT`. */
  readonly otherKey?: 'UNFENCED_WRITE' | 'FENCED_OUT';
  /** Prepares the row, before any lock is taken. */
  readonly given?: (owner: Owner, id: string) => Promise<unknown>;
  readonly write: (owner: Owner, id: string) => Promise<unknown>;
  /** As `write`, with a token that was handed over. */
  readonly writeWith?: (owner: Owner, id: string, expectedLockToken: number) => Promise<unknown>;
  /** Writes a row that is not there yet, so that without a lock only its fence decides: the invoice, or a line of it. */
  readonly inserts?: 'invoice' | 'line';
}

/** The paths of one group, without saying so at each. */
export function pathsOf(group: string, paths: readonly Omit<WritePath, 'group'>[]): readonly WritePath[] {
  return paths.map((path) => ({ group, ...path }));
}

export const rows = (owner: Owner): Repository<Invoice> => owner.repository(Invoice);
export const lines = (owner: Owner): Repository<InvoiceLine> => owner.repository(InvoiceLine);

/** Active records know one DataSource at a time. */
export function activeRecord(owner: Owner): typeof Invoice {
  Invoice.useDataSource(owner.dataSource);
  return Invoice;
}

export const withToken = (expectedLockToken: number): { data: object } => ({ data: { expectedLockToken } });

export async function loaded(owner: Owner, id: string): Promise<Invoice> {
  activeRecord(owner);
  return rows(owner).findOneOrFail({ where: { id }, withDeleted: true });
}

export async function changed(owner: Owner, id: string): Promise<Invoice> {
  return Object.assign(await loaded(owner, id), { status: 'SETTLED' });
}

const ofInvoice = (id: string): ObjectLiteral => ({
  where: { invoice: { id } },
  relations: { invoice: true },
});

export async function line(owner: Owner, id: string): Promise<InvoiceLine> {
  return lines(owner).findOneOrFail(ofInvoice(id));
}

export async function allLines(owner: Owner, id: string): Promise<InvoiceLine[]> {
  return lines(owner).find(ofInvoice(id));
}

export const softRemoved = (owner: Owner, id: string): Promise<unknown> => rows(owner).softDelete({ id });

export async function removed(owner: Owner, id: string): Promise<void> {
  await lines(owner).delete({ invoice: { id } });
  await rows(owner).delete({ id });
}
