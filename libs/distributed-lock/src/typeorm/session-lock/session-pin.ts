import type { DataSource } from 'typeorm';

import { systemClock, withinTime } from '../../core/index.js';
import { openOwnConnection } from '../connection/index.js';
import { driverCode } from '../sql/index.js';
import { type LeaseExpired, PinnedSession } from './pinned-session.js';
import type { SessionLocks } from './session-locks.js';

const OPEN_TIMEOUT_MS = 3_000;
/** An administrator, or a successor, has ended the connection before it did what it was asked. */
const UNDONE = /^(?:57P01|ER_CONNECTION_KILLED)$/;

/**
 * Keeps the one connection that has the locks of this process, out of a pool of its own, so that nobody else borrows it.
 *
 * After anything that leaves doubt it is destroyed, and the next step opens another: the server gives back the locks of the
 * old one, while the lease rows still keep others out.
 */
export class SessionPin {
  #live: Promise<PinnedSession> | undefined;
  #closed = false;

  constructor(
    private readonly dataSource: DataSource,
    private readonly locks: SessionLocks,
    private readonly onLeaseExpired: LeaseExpired,
  ) {}

  /** Nothing is begun once `timeoutMs` have passed: nobody listens any more. */
  async run<T>(
    timeoutMs: number,
    work: (session: PinnedSession, remainingMs: () => number) => Promise<T>,
  ): Promise<T> {
    const endsAtMs = performance.now() + timeoutMs;
    const remainingMs = (): number => endsAtMs - performance.now();
    const attempt = async (): Promise<T> => {
      const session = await this.#session();
      return session.inTurn(remainingMs, () => work(session, remainingMs));
    };
    return attempt().catch((error: unknown) => {
      if (UNDONE.test(driverCode(error))) return attempt();
      throw error;
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    const live = await this.#live?.catch(() => undefined); // it never opened
    await live?.end();
  }

  async #session(): Promise<PinnedSession> {
    if (this.#closed) throw new Error('this lock store has been closed');
    this.#live ??= this.#open().catch((error: unknown) => {
      this.#live = undefined;
      throw error;
    });
    const session = await this.#live;
    if (!session.ended) return session;
    this.#live = undefined;
    return this.#session();
  }

  async #open(): Promise<PinnedSession> {
    const session = await this.#pinned(await this.#connect());
    try {
      await session.inTurn(
        () => OPEN_TIMEOUT_MS,
        () => this.locks.prepare(session),
      );
      return session;
    } catch (error) {
      await session.end();
      throw error;
    }
  }

  /** A server that is silent while a connection begins is worth another one, long before the driver gives it up. */
  async #connect(): Promise<DataSource> {
    const opening = openOwnConnection(this.dataSource, { poolSize: 1 });
    try {
      return await withinTime(systemClock, OPEN_TIMEOUT_MS, () => opening);
    } catch (error) {
      opening.then((late) => late.destroy()).catch(() => undefined); // nobody uses it any more
      throw error;
    }
  }

  async #pinned(own: DataSource): Promise<PinnedSession> {
    try {
      return await PinnedSession.on(own, this.onLeaseExpired);
    } catch (error) {
      await own.destroy().catch(() => undefined); // the first error says more
      throw error;
    }
  }
}
