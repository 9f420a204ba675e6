import { AsyncLocalStorage } from 'node:async_hooks';

/** Call chains that write through one connection, one after the other. */
export interface Turns {
  /** Runs `work` when nobody else has the turn. Inside a turn of the same chain it runs at once. */
  take<T>(work: () => Promise<T>): Promise<T>;
}

/** Where each chain has a connection of its own, nobody has to wait. */
export const noTurns: Turns = { take: (work) => work() };

interface Turn {
  open: boolean;
}

/** The driver would say the same of a second connection. */
class TurnTakenError extends Error {
  readonly code = 'SQLITE_BUSY';

  constructor(patienceMs: number) {
    super(
      `Another transaction of this process kept the only connection to SQLite for ${patienceMs} ms. Nothing was written; ` +
        'keep transactions short, and do not await in one what another call chain writes.',
    );
  }
}

/**
 * A DataSource on SQLite has one connection for all. Without turns, whatever is written while a transaction is open becomes
 * part of it, and is lost when it rolls back, though its caller was told that it had been saved.
 */
export class SingleConnectionTurns implements Turns {
  readonly #turn = new AsyncLocalStorage<Turn>();
  readonly #waiting = new Set<() => void>();
  #taken = false;

  constructor(private readonly patienceMs: number) {}

  async take<T>(work: () => Promise<T>): Promise<T> {
    if (this.#turn.getStore()?.open) return work();
    await this.#wait();
    const turn = { open: true };
    try {
      return await this.#turn.run(turn, work);
    } finally {
      turn.open = false;
      this.#pass();
    }
  }

  #wait(): Promise<void> {
    if (!this.#taken) {
      this.#taken = true;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const enter = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(enter);
        reject(new TurnTakenError(this.patienceMs));
      }, this.patienceMs);
      this.#waiting.add(enter);
    });
  }

  /** Straight to the longest waiter, so that a newcomer cannot slip in between. */
  #pass(): void {
    const [next] = this.#waiting;
    if (!next) {
      this.#taken = false;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
