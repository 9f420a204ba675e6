import type { Claim, KeyWatch } from '../../core/index.js';
import type { ServerConnection } from '../connection/index.js';
import type { Session } from '../lease-table/index.js';

/** The connection that has the locks, as the dialects use it. */
export interface LockSession extends Session {
  readonly connection: ServerConnection;
  readonly ended: boolean;
}

/** What one look at the lease row and one try for the lock of the session came to. */
export interface Look {
  /** Null: it was not asked for, because the row says that somebody else has the lease. */
  readonly got: boolean | null;
  readonly ownerId: string | null;
  /** Not positive: the lease is over, or there never was one. */
  readonly remainingMs: number;
}

/** What the store asks of the locks that a database server keeps for a connection, in the words of one dialect. */
export interface SessionLocks {
  /** The name by which the server knows the lock of a key. Two keys with one name only wait for each other. */
  nameOf(key: string): string;
  /**
   * Makes a new connection ready.
   *
   * @throws {LockConfigInvalidError} the connection is shared with others, or its locks are not known to the whole database
   */
  prepare(session: LockSession): Promise<void>;
  /** The lease row as it is, and the lock if the row leaves it free. Keys are given as they are stored. */
  look(session: LockSession, name: string, claim: Claim): Promise<Look>;
  /**
   * Asks for all of these locks. Left out are those that somebody outside this library has; another session of this library
   * can only be the one that this process had before, which the server still believes in.
   */
  keep(session: LockSession, names: readonly string[]): Promise<ReadonlySet<string>>;
  /** False when the session did not have it, which should not be. Wakes those who wait for it. */
  unlock(session: LockSession, name: string): Promise<boolean>;
  /** Wakes those who wait for a lock that went with a former connection. Absent where they wait for the lock itself. */
  tellFree?(session: LockSession, name: string): Promise<void>;
  /** Ends the connection that has the lock if it is one of ours and says nothing, as that of a stopped process. */
  evictSilent(session: LockSession, name: string): Promise<boolean>;
  watch(name: string, wake: () => void): KeyWatch;
  close(): Promise<void>;
}
