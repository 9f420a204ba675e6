import { createLockTables } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { Invoice, type InvoiceStatus } from '../billing/invoice.entity.js';
import type { InvoiceLine } from '../invoices/invoice-line.js';
import { invoiceDatabase, lockDatabase } from './data-source-options.js';
import { patiently } from './patiently.js';
import { countPaidOut, layOutRecords } from './record-store.js';
import type { StorageSettings } from './storage-settings.js';

const ROWS_PER_INSERT = 200;

/** The coordinator's own view of the database: it lays out the tables before the run, and reads them afterwards. */
export class InvoiceBook {
  constructor(private readonly settings: StorageSettings) {}

  /** Fresh tables with these invoices, all READY, and the tables that locks, fences and records need. */
  async open(invoices: readonly InvoiceLine[]): Promise<void> {
    const { locks } = this.settings;
    await this.#connected((database) => layOut(database, invoices));
    if (locks.kind === 'sqlite') await createLockTables(new DataSource(lockDatabase(locks)));
    await layOutRecords(this.settings);
  }

  async statuses(): Promise<Map<string, InvoiceStatus>> {
    const rows = await patiently(() =>
      this.#connected((database) =>
        database.getRepository(Invoice).find({ select: { id: true, status: true } }),
      ),
    );
    return new Map(rows.map(({ id, status }) => [id, status]));
  }

  /** How many of these invoices are paid by the word of the store of records. */
  paidOut(invoiceIds: readonly string[]): Promise<number> {
    return patiently(() => countPaidOut(this.settings, invoiceIds));
  }

  /** Takes away what the run has put on a server. A SQLite file keeps its table, for whoever wants to look. */
  async close(): Promise<void> {
    const { data } = this.settings;
    if (data.kind !== 'postgres') return;
    const drop = `DROP SCHEMA IF EXISTS "${data.schema}" CASCADE`;
    await patiently(() => this.#connected((database) => database.query(drop)));
  }

  async #connected<T>(work: (database: DataSource) => Promise<T>): Promise<T> {
    const database = await new DataSource(invoiceDatabase(this.settings.data)).initialize();
    try {
      return await work(database);
    } finally {
      await database.destroy();
    }
  }
}

async function layOut(database: DataSource, invoices: readonly InvoiceLine[]): Promise<void> {
  const { type, schema } = database.options as { type: string; schema?: string };
  // On a server the run has a schema of its own. In a file, the table is the demo's and may be from an earlier run.
  if (type === 'postgres') await database.query(`CREATE SCHEMA "${schema}"`);
  else await database.query(`DROP TABLE IF EXISTS "${database.getMetadata(Invoice).tableName}"`);
  await database.synchronize();
  for (let i = 0; i < invoices.length; i += ROWS_PER_INSERT) {
    const rows = invoices.slice(i, i + ROWS_PER_INSERT);
    await database.getRepository(Invoice).insert(rows.map((row) => ({ ...row, status: 'READY' as const })));
  }
  await createLockTables(database);
}
