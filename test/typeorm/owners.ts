import { AsyncResource } from 'node:async_hooks';

import type { DataSource, DataSourceOptions, ObjectLiteral, Repository } from 'typeorm';

import {
  LockService,
  memoryStore,
  type Clock,
  type Lease,
  type LockEvent,
  type LockStore,
} from 'nestjs-distributed-lock';
import {
  createLockTables,
  guardDataSource,
  unfenced,
  type GuardOptions,
} from 'nestjs-distributed-lock/typeorm';

import type { TestDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';

/** What one process has: its connections, its locks, and what it was told. */
export interface Owner {
  readonly dataSource: DataSource;
  readonly locks: LockService;
  readonly events: LockEvent[];
  repository<E extends ObjectLiteral>(entity: new () => E): Repository<E>;
  stop(): Promise<void>;
}

const outside = new AsyncResource('another process');

/** Runs `work` in a call chain of its own, as another process would. */
export function elsewhere<T>(work: () => T): T {
  return outside.runInAsyncScope(work);
}

/** Runs one test on a database of its own. */
export async function withOwners(
  start: () => Promise<TestDatabase>,
  work: (owners: Owners) => Promise<unknown>,
  ...rest: Parameters<typeof Owners.on> extends [TestDatabase, ...infer Rest] ? Rest : never
): Promise<void> {
  const owners = await Owners.on(await start(), ...rest);
  try {
    await work(owners);
  } finally {
    await owners.stop();
  }
}

const LONG_TTL_MS = 120_000;

/** Several owners with one lock store and one database, as several processes would be. */
export class Owners {
  readonly #owners: Owner[] = [];

  private constructor(
    readonly database: TestDatabase,
    private readonly entities: readonly (new () => object)[],
    readonly store: LockStore,
  ) {}

  static async on(
    database: TestDatabase,
    entities: readonly (new () => object)[] = [Invoice, InvoiceLine, Label],
    store: LockStore = memoryStore(),
  ): Promise<Owners> {
    const plain = await database.connect({ entities: [...entities], synchronize: true });
    await createLockTables(plain);
    await plain.destroy();
    return new Owners(database, entities, store);
  }

  async add(
    options: GuardOptions & { readonly plain?: boolean; readonly clock?: Clock } = {},
    source: Partial<DataSourceOptions> = {},
  ): Promise<Owner> {
    const dataSource = await this.database.connect({ entities: [...this.entities], ...source });
    const locks = new LockService({ stores: { default: this.store }, clock: options.clock });
    const events: LockEvent[] = [];
    locks.events.subscribe((event) => void events.push(event));
    if (!options.plain) guardDataSource(dataSource, locks, options);
    const owner: Owner = {
      dataSource,
      locks,
      events,
      repository: (entity) => dataSource.getRepository(entity),
      stop: async () => {
        await locks.close(0);
        if (dataSource.isInitialized) await dataSource.destroy();
      },
    };
    this.#owners.push(owner);
    return owner;
  }

  async hold(owner: Owner, key: string): Promise<Lease> {
    return owner.locks.acquire(key, { ttlMs: LONG_TTL_MS, waitMs: 0 });
  }

  /**
   * What a pause beyond the lease comes to: the store gives the key to `successor`, and the old owner, whose clocks stood
   * still, does not know. Returns the successor's lease.
   */
  async takeOver(lease: Lease, successor: Owner): Promise<Lease> {
    await this.store.release({ key: lease.qualifiedKey, ownerId: lease.ownerId, keepForMs: 0 }, 1_000);
    return elsewhere(() => this.hold(successor, lease.key));
  }

  async stop(): Promise<void> {
    for (const owner of this.#owners) await owner.stop();
    await this.database.stop();
  }
}

/** All rows of the model's tables, in order, as the database has them. */
export async function contents({ dataSource }: Owner): Promise<Record<string, unknown[]>> {
  const tables = dataSource.entityMetadatas.map(({ tableName }) => tableName).sort();
  const rows: Record<string, unknown[]> = {};
  for (const table of tables)
    rows[table] = await dataSource.query(`SELECT * FROM ${dataSource.driver.escape(table)} ORDER BY 1`);
  return rows;
}

export async function empty({ dataSource }: Owner): Promise<void> {
  await unfenced('the next test begins', async () => {
    for (const table of ['invoice_labels_label', 'invoice_line', 'invoice'])
      await dataSource.query(`DELETE FROM ${table}`);
  });
}

/** Rows from before anybody locked anything: an invoice with a line for each id. */
export async function seed(owner: Owner, ...ids: string[]): Promise<void> {
  await unfenced('rows that are there already', async () => {
    await owner.repository(Invoice).insert(ids.map((id) => ({ id, address: { city: 'Rome' } })));
    await owner.repository(InvoiceLine).insert(ids.map((id) => ({ invoice: { id }, text: `line of ${id}` })));
  });
}
