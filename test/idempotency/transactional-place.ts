import {
  IdempotencyService,
  LockService,
  memoryStore,
  type Attempt,
  type IdempotencyEvent,
  type IdempotencyStore,
  type LockStore,
} from 'nestjs-distributed-lock';
import {
  createIdempotencyTable,
  createLockTables,
  guardDataSource,
  transactionManager,
  typeormIdempotencyStore,
} from 'nestjs-distributed-lock/typeorm';
import type { DataSource, DataSourceOptions } from 'typeorm';

import { eventually } from '../servers/eventually.js';
import type { TestDatabase } from '../typeorm/databases.js';

/** What one process has. */
export interface Replica {
  readonly dataSource: DataSource;
  readonly locks: LockService;
  readonly store: IdempotencyStore;
  readonly service: IdempotencyService;
  readonly events: IdempotencyEvent[];
  stop(): Promise<void>;
}

/** A body with one effect in the database, which it tells apart from those of other attempts by `mark`. */
export function effect(key: string, mark = 'effect'): (attempt: Attempt) => Promise<string> {
  return async () => {
    await write(transactionManager(), key, mark);
    return mark;
  };
}

export async function write(on: Writer, key: string, mark: string): Promise<void> {
  const [k, m] = [key, mark].map((text) => `'${text.replaceAll("'", "''")}'`);
  await on.query(`INSERT INTO effect (k, mark) VALUES (${k}, ${m})`);
}

/** A DataSource, a manager or a query runner. */
interface Writer {
  query(sql: string): Promise<unknown>;
}

/** One database with a table of effects, and as many replicas of an application on it as a test wants. */
export class TransactionalPlace {
  readonly #replicas: Replica[] = [];
  readonly #lockStore: LockStore = memoryStore();

  private constructor(
    readonly database: TestDatabase,
    readonly plain: DataSource,
  ) {}

  static async on(database: TestDatabase): Promise<TransactionalPlace> {
    const plain = await database.connect();
    await plain.query('CREATE TABLE effect (k varchar(200) NOT NULL, mark varchar(200) NOT NULL)');
    await createIdempotencyTable(plain);
    await createLockTables(plain);
    return new TransactionalPlace(database, plain);
  }

  async replica(
    source: Partial<DataSourceOptions> = {},
    prepare: (dataSource: DataSource) => void = () => undefined,
  ): Promise<Replica> {
    const dataSource = await this.database.connect(source);
    prepare(dataSource);
    const locks = new LockService({ stores: { default: this.#lockStore } });
    guardDataSource(dataSource, locks);
    const store = typeormIdempotencyStore({ dataSource });
    const events: IdempotencyEvent[] = [];
    const onEvent = (event: IdempotencyEvent): void => void events.push(event);
    const service = new IdempotencyService({ store, fences: locks.fences, onEvent });
    const stop = async (): Promise<void> => {
      await service.close({ graceMs: 0 });
      await locks.close(0);
      if (dataSource.isInitialized) await dataSource.destroy();
    };
    const replica = { dataSource, locks, store, service, events, stop };
    this.#replicas.push(replica);
    return replica;
  }

  /** What is in the database for this key, whoever wrote it. */
  async effectsOf(key: string): Promise<string[]> {
    const rows: { readonly mark: string }[] = await this.plain.query(
      `SELECT mark FROM effect WHERE k = '${key.replaceAll("'", "''")}'`,
    );
    return rows.map(({ mark }) => mark).sort();
  }

  /** What the end of a lease comes to, for the record of an owner whose process stands still. */
  async lapse(): Promise<void> {
    const past = {
      postgres: `leased_until = statement_timestamp() - interval '1 second'`,
      mysql: 'leased_until_us = 1',
      sqlite: 'leased_until = 1',
    }[this.database.dialect];
    const running = `UPDATE idempotency_record SET ${past} WHERE state = 'running'`;
    // Over all rows, beside calls that have some of them locked: whom the database picks as its victim tries again.
    await eventually(() => this.plain.query(running));
  }

  async stop(): Promise<void> {
    for (const replica of this.#replicas) await replica.stop();
    await this.plain.destroy();
    await this.database.stop();
  }
}

export async function codeOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    (value) => `resolved: ${JSON.stringify(value)}`,
    (error: { code?: string; message: string }) => error.code ?? error.message,
  );
}
