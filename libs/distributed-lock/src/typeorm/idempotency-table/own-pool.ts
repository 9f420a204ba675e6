import type { DataSource } from 'typeorm';

import { inOwnSession, openOwnConnection } from '../connection/index.js';
import { retryTransient } from '../sql/index.js';
import type { Session } from './record-statements.js';

/** Connections of our own, opened at the first use. */
export class OwnPool {
  #own: Promise<DataSource> | undefined;
  #closed = false;

  constructor(
    private readonly dataSource: DataSource,
    private readonly poolSize: number,
  ) {}

  /** Nothing is begun once `timeoutMs` have passed: nobody listens any more. */
  async run<T>(timeoutMs: number, work: (session: Session) => Promise<T>): Promise<T> {
    const endsAtMs = performance.now() + timeoutMs;
    const own = await this.#connection();
    const remainingMs = (): number => endsAtMs - performance.now();
    return retryTransient(remainingMs(), () => inOwnSession(own, remainingMs(), work));
  }

  async close(): Promise<void> {
    this.#closed = true;
    const own = await this.#own?.catch(() => undefined); // it never opened
    this.#own = undefined;
    if (own?.isInitialized) await own.destroy();
  }

  /** Opened again when that failed. Later the pool itself replaces what breaks. */
  #connection(): Promise<DataSource> {
    if (this.#closed) return Promise.reject(new Error('this idempotency store has been closed'));
    this.#own ??= openOwnConnection(this.dataSource, { poolSize: this.poolSize }).catch((error: unknown) => {
      this.#own = undefined;
      throw error;
    });
    return this.#own;
  }
}
