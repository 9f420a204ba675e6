import type { DataSource, QueryRunner } from 'typeorm';

import { OutsideTransactionError } from '../../core/index.js';
import { override } from './override.js';
import type { Transaction, Transactions } from './transactions.js';

/** What pg and mysql2 open at most when they are told nothing. */
const DRIVER_POOL_SIZE = 10;

/**
 * Knows of the calls that keep a connection in a transaction and wait for another one, beside it. When these keep all of
 * the pool, nobody is left who could give one back, and without a word they would wait for ever.
 */
export class PoolWaits {
  readonly #waits = new Set<readonly Transaction[]>();
  readonly #poolSize: number;
  readonly #hasReplicas: boolean;

  constructor(
    dataSource: DataSource,
    private readonly transactions: Transactions,
  ) {
    this.#poolSize = poolSizeOf(dataSource);
    this.#hasReplicas = 'replication' in dataSource.options && dataSource.options.replication !== undefined;
  }

  follow(runner: QueryRunner): void {
    if (this.#hasReplicas && runner.getReplicationMode() === 'slave') return; // another pool
    const connect = runner.connect.bind(runner) as () => Promise<unknown>;
    let connected = false;
    override(runner, 'connect', async () => {
      const kept = connected ? [] : this.transactions.enclosing().filter((each) => each.runner !== runner);
      const connection = kept.length === 0 ? await connect() : await this.#wait(kept, connect);
      connected = true;
      return connection;
    });
  }

  async #wait(kept: readonly Transaction[], connect: () => Promise<unknown>): Promise<unknown> {
    this.#waits.add(kept);
    try {
      if (new Set([...this.#waits].flat()).size >= this.#poolSize) throw this.#exhausted(kept);
      return await connect();
    } finally {
      this.#waits.delete(kept);
    }
  }

  #exhausted(kept: readonly Transaction[]): OutsideTransactionError {
    const [lease] = kept.flatMap(({ leases }) => [...leases]);
    const under = lease ? ` under "${lease.key}"` : '';
    return new OutsideTransactionError(
      `A statement beside the transaction that is open here${under} was not sent: it needs a connection of its own, and all ` +
        `${this.#poolSize} of the DataSource's pool are kept by transactions that wait for one. Use the manager that the ` +
        'transaction gives to its work, or make poolSize larger than the number of calls at a time.',
      { key: lease?.key, store: lease?.store },
    );
  }
}

function poolSizeOf({ options }: DataSource): number {
  const { poolSize, extra } = options as {
    readonly poolSize?: number;
    readonly extra?: { readonly max?: number; readonly connectionLimit?: number };
  };
  return extra?.max ?? extra?.connectionLimit ?? poolSize ?? DRIVER_POOL_SIZE;
}
