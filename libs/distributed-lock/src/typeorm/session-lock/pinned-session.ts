import type { DataSource, QueryRunner } from 'typeorm';

import { cut, type ServerConnection } from '../connection/index.js';
import { HeldLocks } from './held-locks.js';
import type { LockSession } from './session-locks.js';

/** Dropping the connection costs more than waiting for a server that is only slow. */
const SHORTEST_PATIENCE_MS = 1_000;

/** A connection and the locks that it has. Both end together. */
export class PinnedSession implements LockSession {
  readonly held: HeldLocks;
  #lastTurn: Promise<unknown> = Promise.resolve();
  #ended: Promise<void> | undefined;

  private constructor(
    private readonly own: DataSource,
    private readonly runner: QueryRunner,
    readonly connection: ServerConnection,
    onLeaseExpired: LeaseExpired,
  ) {
    this.held = new HeldLocks((name, grant) => onLeaseExpired(this, name, grant));
    for (const event of ['error', 'end']) connection.on(event, () => void this.end());
  }

  /** @param own has room for one connection, and ends with it */
  static async on(own: DataSource, onLeaseExpired: LeaseExpired): Promise<PinnedSession> {
    const runner = own.createQueryRunner('master');
    return new PinnedSession(own, runner, (await runner.connect()) as ServerConnection, onLeaseExpired);
  }

  get ended(): boolean {
    return this.#ended !== undefined;
  }

  query(sql: string, parameters?: unknown[]): Promise<unknown> {
    return this.runner.query(sql, parameters);
  }

  /**
   * Runs `work` when all steps before it are over, unless its time is over by then. A step that fails or is not answered in
   * time leaves doubt about what this connection has: it is destroyed.
   */
  inTurn<T>(remainingMs: () => number, work: () => Promise<T>): Promise<T> {
    const turn = this.#lastTurn.then(() => this.#step(remainingMs(), work));
    this.#lastTurn = turn.catch(() => undefined); // its caller hears of it
    return turn;
  }

  /** Destroys the connection. Never rejects; twice is harmless. */
  end(): Promise<void> {
    this.#ended ??= this.#destroy();
    return this.#ended;
  }

  async #step<T>(timeoutMs: number, work: () => Promise<T>): Promise<T> {
    if (this.ended)
      throw new Error('the connection that has the locks has ended; the next command opens another');
    if (timeoutMs <= 0) throw new Error('the connection that has the locks was busy for too long');
    const timer = setTimeout(() => void this.end(), Math.max(timeoutMs, SHORTEST_PATIENCE_MS));
    try {
      return await work();
    } catch (error) {
      void this.end();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #destroy(): Promise<void> {
    this.held.clear();
    cut(this.connection);
    await this.runner.release().catch(() => undefined); // it is gone either way
    await this.own.destroy().catch(() => undefined);
  }
}

/** Nobody renewed the lease that a lock is had for. */
export type LeaseExpired = (session: PinnedSession, name: string, grant: string) => void;
