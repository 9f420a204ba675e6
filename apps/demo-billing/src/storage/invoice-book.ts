import { createLockTables } from 'nestjs-distributed-lock/typeorm';
import { DataSource, type DataSourceOptions } from 'typeorm';

import { Invoice, type InvoiceStatus } from '../billing/invoice.entity.js';
import type { InvoiceLine } from '../invoices/invoice-line.js';
import { bareServer, invoiceDatabase, lockDatabase } from './data-source-options.js';
import { patiently } from './patiently.js';
import { countPaidOut, layOutRecords } from './record-store.js';
import type { ServerDatabase, StorageSettings } from './storage-settings.js';

const ROWS_PER_INSERT = 200;

/** Their names are made by the demo: see `storageFor()`. */
const CREATE_SCHEMA = {
  postgres: (name: string) => `CREATE SCHEMA "${name}"`,
  mysql: (name: string) => `CREATE DATABASE \`${name}\` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`, // ids differ by bytes
};
const DROP_SCHEMA = {
  postgres: (name: string) => `DROP SCHEMA IF EXISTS "${name}" CASCADE`,
  mysql: (name: string) => `DROP DATABASE IF EXISTS \`${name}\``,
};

/** The coordinator's own view of the database: it lays out the tables before the run, and reads them afterwards. */
export class InvoiceBook {
  #hasSchema = false;

  constructor(private readonly settings: StorageSettings) {}

  /** Fresh tables with these invoices, all READY, and the tables that locks, fences and records need. */
  async open(invoices: readonly InvoiceLine[]): Promise<void> {
    const { data, locks } = this.settings;
    if (data.kind !== 'sqlite') await this.#createSchema(data);
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

  /** Takes away what the run has put on a server. A SQLite file keeps its tables, for whoever wants to look. */
  async close(): Promise<void> {
    const { data } = this.settings;
    if (data.kind === 'sqlite' || !this.#hasSchema) return;
    await patiently(() =>
      connected(bareServer(data), (server) => server.query(DROP_SCHEMA[data.kind](data.schema))),
    );
  }

  /** On a server each run has a schema of its own. */
  async #createSchema(data: ServerDatabase): Promise<void> {
    await connected(bareServer(data), (server) => server.query(CREATE_SCHEMA[data.kind](data.schema)));
    this.#hasSchema = true;
  }

  #connected<T>(work: (database: DataSource) => Promise<T>): Promise<T> {
    return connected(invoiceDatabase(this.settings.data), work);
  }
}

async function connected<T>(
  options: DataSourceOptions,
  work: (database: DataSource) => Promise<T>,
): Promise<T> {
  const database = await new DataSource(options).initialize();
  try {
    return await work(database);
  } finally {
    await database.destroy();
  }
}

async function layOut(database: DataSource, invoices: readonly InvoiceLine[]): Promise<void> {
  const { tableName } = database.getMetadata(Invoice);
  // In a file, the table is the demo's and may be from an earlier run.
  if (database.options.type === 'better-sqlite3') await database.query(`DROP TABLE IF EXISTS "${tableName}"`);
  await database.synchronize();
  for (let i = 0; i < invoices.length; i += ROWS_PER_INSERT) {
    const rows = invoices.slice(i, i + ROWS_PER_INSERT);
    await database.getRepository(Invoice).insert(rows.map((row) => ({ ...row, status: 'READY' as const })));
  }
  await createLockTables(database);
}
