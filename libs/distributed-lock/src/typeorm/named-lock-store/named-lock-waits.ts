import type { DataSource, QueryRunner } from 'typeorm';

import { jittered, type KeyWatch } from '../../core/index.js';
import { openOwnConnection } from '../connection/index.js';
import { rowsOf } from '../lease-table/index.js';

/** How many locks may be waited for at the same time, each on a connection. Who waits for more asks now and then. */
const WAITS = 4;
/** In seconds: the server ends a wait by itself, so that nobody waits on for a process that has gone. */
const LONGEST_WAIT = 2;
/** A lock may be free while the row keeps the key: then there is nothing to wait for. */
const BETWEEN_WAITS_MS = 250;

interface Waited {
  readonly ears: Set<() => void>;
  blocked: boolean;
}

/** Who waits for a lock of others has the server wait for it, takes it for an instant, and wakes the waiter. */
export class NamedLockWaits {
  readonly #waiting = new Map<string, Waited>();
  readonly #connections = new Set<{ destroy(): void }>();
  #pool: Promise<DataSource> | undefined;
  #busy = 0;
  #closed = false;

  constructor(private readonly dataSource: DataSource) {}

  watch(name: string, wake: () => void): KeyWatch {
    const waited = this.#waiting.get(name) ?? this.#begin(name);
    const ear = (): void => wake();
    waited.ears.add(ear);
    return {
      get hears() {
        return waited.blocked;
      },
      stop: () => {
        waited.ears.delete(ear);
        if (waited.ears.size === 0 && this.#waiting.get(name) === waited) this.#waiting.delete(name);
      },
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#waiting.clear();
    const pool = await this.#pool?.catch(() => undefined); // it never opened
    this.#pool = undefined;
    for (const connection of this.#connections) connection.destroy();
    if (pool?.isInitialized) await pool.destroy();
  }

  #begin(name: string): Waited {
    const waited: Waited = { ears: new Set(), blocked: false };
    this.#waiting.set(name, waited);
    if (this.#busy < WAITS && !this.#closed) {
      this.#busy += 1;
      void this.#follow(name, waited)
        .catch(() => undefined) // the core asks by itself meanwhile
        .finally(() => (this.#busy -= 1));
    }
    return waited;
  }

  async #follow(name: string, waited: Waited): Promise<void> {
    const session = await this.#session();
    try {
      while (this.#waiting.get(name) === waited) {
        waited.blocked = true;
        const free = await becameFree(session, name);
        waited.blocked = false;
        if (free) for (const wake of waited.ears) wake();
        await new Promise((resolve) => setTimeout(resolve, jittered(BETWEEN_WAITS_MS)));
      }
    } finally {
      waited.blocked = false;
      await session.release();
    }
  }

  async #session(): Promise<QueryRunner> {
    this.#pool ??= openOwnConnection(this.dataSource, { poolSize: WAITS }).catch((error: unknown) => {
      this.#pool = undefined;
      throw error;
    });
    const session = (await this.#pool).createQueryRunner('master');
    const connection = (await session.connect()) as { destroy(): void };
    this.#connections.add(connection);
    if (this.#closed) connection.destroy();
    return session;
  }
}

/** Also when it was free from the beginning. */
async function becameFree(session: QueryRunner, name: string): Promise<boolean> {
  const [row] = await rowsOf(session, 'SELECT GET_LOCK(?, ?) AS got', [name, LONGEST_WAIT]);
  if (Number(row?.['got']) !== 1) return false;
  await session.query('SELECT RELEASE_LOCK(?)', [name]);
  return true;
}
