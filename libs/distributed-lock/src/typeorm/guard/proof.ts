import type { Lease } from '../../core/index.js';

/** What a write shows to the database: a token, and whose it is. */
export interface Proof {
  readonly key: string;
  readonly qualifiedKey: string;
  readonly token: number;
  /** Null when only the token was handed over. */
  readonly ownerId: string | null;
  /** Null when the hold is somebody else's, and only its token was handed over. */
  readonly lease: Lease | null;
}
