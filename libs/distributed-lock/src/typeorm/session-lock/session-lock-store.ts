import type { DataSource } from 'typeorm';

import {
  type Busy,
  type Claim,
  type Grant,
  type KeyWatch,
  LockConfigInvalidError,
  LockError,
  type LockStore,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewalAnswer,
  StoreUnavailableError,
} from '../../core/index.js';
import { busyFor, grantName, type LeaseStatements } from '../lease-table/index.js';
import { driverCode, retryTransient, storedKey } from '../sql/index.js';
import type { PinnedSession } from './pinned-session.js';
import type { SessionLocks } from './session-locks.js';
import { SessionPin } from './session-pin.js';

export interface SessionLockStoreSetup {
  readonly kind: string;
  readonly dataSource: DataSource;
  readonly table: string;
  readonly leases: LeaseStatements;
  readonly locks: SessionLocks;
}

/** Shorter leases would be over before a busy database has answered. */
const MIN_TTL_MS = 50;
const BOOT_TIMEOUT_MS = 5_000;
const UNLOCK_TIMEOUT_MS = 2_000;
/** The lease is over and its lock not free yet: its holder gives it back now, or is taken for stopped after this. */
const LATE_UNLOCK_MS = 250;
/** How soon to ask again for a lock that is about to be free, and for one that somebody outside this library has. */
const SOON_MS = 25;
const LATER_MS = 250;
/** What the database says of a table or a right that is missing, against an answer that never came. */
const REFUSED = /^(?:42|3F)...$|^ER_(?:NO_SUCH_TABLE|BAD_FIELD_ERROR|NO_DB_ERROR|\w+ACCESS_DENIED_ERROR)$/;

/**
 * A lease is a row, and its holder has a lock of the server's as well. The lock alone would be free the moment its connection
 * breaks, while its holder may be alive and at work; the row alone would not keep out those who ask for the lock by other means.
 *
 * Order: look at the row and take the lock, then write the row; to give back, free the row, then the lock.
 */
export class SessionLockStore implements LockStore {
  readonly kind: string;
  readonly minTtlMs = MIN_TTL_MS;
  readonly keepsReleasedKeys = true;
  readonly #pin: SessionPin;
  readonly #leases: LeaseStatements;
  readonly #locks: SessionLocks;

  constructor(private readonly setup: SessionLockStoreSetup) {
    this.kind = setup.kind;
    this.#leases = setup.leases;
    this.#locks = setup.locks;
    this.#pin = new SessionPin(setup.dataSource, setup.locks, (session, name, grant) => {
      const step = (): Promise<void> => this.#drop(session, name, grant);
      session.inTurn(() => UNLOCK_TIMEOUT_MS, step).catch(() => undefined); // the connection has ended, and its locks with it
    });
  }

  async open(): Promise<void> {
    const complaint = await this.#pin
      .run(BOOT_TIMEOUT_MS, (session) => this.#leases.check(session))
      .catch((error: unknown) => this.#complaintOf(error));
    if (complaint === null) return;
    throw new LockConfigInvalidError(
      `The lease table "${this.setup.table}" cannot be used: ${complaint}. ` +
        'Call createLockTables(dataSource) once, for example in a migration.',
    );
  }

  tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    const name = this.#locks.nameOf(claim.key);
    const stored = { ...claim, key: storedKey(claim.key) };
    return this.#pin.run(timeoutMs, async (session, remainingMs) => {
      if (session.held.has(name)) return this.#lease(session, name, stored, remainingMs());
      const { got, ownerId, remainingMs: leftMs } = await this.#locks.look(session, name, stored);
      if (got === null) return busyFor(leftMs);
      if (got) return this.#leaseUnderLock(session, name, stored, remainingMs());
      // Sent twice, and the connection that took the first is not gone yet.
      if (ownerId === stored.ownerId && leftMs > 0) return this.#row(session, stored, remainingMs());
      const soon = leftMs >= -LATE_UNLOCK_MS || (await this.#locks.evictSilent(session, name));
      return { kind: 'busy', retryAfterMs: soon ? SOON_MS : LATER_MS };
    });
  }

  async renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    if (claims.length === 0) return [];
    const stored = claims.map((claim) => ({ ...claim, key: storedKey(claim.key) }));
    const names = claims.map(({ key }) => this.#locks.nameOf(key));
    return this.#pin.run(timeoutMs, async (session, remainingMs) => {
      const renewed = await retryTransient(remainingMs(), () => this.#leases.renew(session, stored));
      const alive = stored.map(({ ownerId, key }) => renewed.has(grantName(ownerId, key)));
      const locked = await this.#locks.keep(
        session,
        names.filter((_, i) => alive[i]),
      );
      return this.#settle(session, stored, names, (i) => alive[i] === true && locked.has(names[i] as string));
    });
  }

  release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    const name = this.#locks.nameOf(request.key);
    const stored = { ...request, key: storedKey(request.key) };
    return this.#pin.run(timeoutMs, async (session, remainingMs) => {
      const done = await retryTransient(remainingMs(), () => this.#leases.release(session, stored));
      if (session.held.has(name)) await this.#drop(session, name, grantName(stored.ownerId, stored.key));
      else if (done) await this.#locks.tellFree?.(session, name);
      return done ? 'released' : 'not-owner';
    });
  }

  watch(key: string, wake: () => void): KeyWatch {
    return this.#locks.watch(this.#locks.nameOf(key), wake);
  }

  async close(): Promise<void> {
    await Promise.all([this.#pin.close(), this.#locks.close()]);
  }

  async #leaseUnderLock(
    session: PinnedSession,
    name: string,
    stored: Claim,
    timeoutMs: number,
  ): Promise<Grant | Busy> {
    const answer = await this.#lease(session, name, stored, timeoutMs);
    if (answer.kind === 'busy') await this.#unlock(session, name);
    return answer;
  }

  async #lease(
    session: PinnedSession,
    name: string,
    stored: Claim,
    timeoutMs: number,
  ): Promise<Grant | Busy> {
    const answer = await this.#row(session, stored, timeoutMs);
    if (answer.kind === 'granted')
      session.held.keep(name, grantName(stored.ownerId, stored.key), stored.ttlMs);
    return answer;
  }

  #row(session: PinnedSession, stored: Claim, timeoutMs: number): Promise<Grant | Busy> {
    return retryTransient(timeoutMs, () => this.#leases.tryAcquire(session, stored));
  }

  /** A lease without its lock is no longer what was promised, so it counts as lost. */
  async #settle(
    session: PinnedSession,
    stored: readonly Claim[],
    names: readonly string[],
    isHeld: (i: number) => boolean,
  ): Promise<readonly RenewalAnswer[]> {
    const answers: RenewalAnswer[] = [];
    for (const [i, { ownerId, key, ttlMs }] of stored.entries()) {
      const name = names[i] as string;
      const grant = grantName(ownerId, key);
      if (isHeld(i)) session.held.keep(name, grant, ttlMs);
      else await this.#drop(session, name, grant);
      answers.push(isHeld(i) ? 'renewed' : 'lost');
    }
    return answers;
  }

  async #drop(session: PinnedSession, name: string, grant: string): Promise<void> {
    if (session.held.drop(name, grant)) await this.#unlock(session, name);
  }

  async #unlock(session: PinnedSession, name: string): Promise<void> {
    if (await this.#locks.unlock(session, name)) return;
    await session.end(); // whatever else it does not have will be taken again by the next renewal
  }

  #complaintOf(error: unknown): string {
    if (error instanceof LockError) throw error;
    if (REFUSED.test(driverCode(error))) return (error as Error).message;
    throw new StoreUnavailableError(
      `The database of the lease table "${this.setup.table}" gave no answer. Nothing was locked; check that it runs and can be reached.`,
      { cause: error },
    );
  }
}
