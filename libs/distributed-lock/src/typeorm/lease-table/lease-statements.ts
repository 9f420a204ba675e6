import type { Busy, Claim, Grant, ReleaseRequest } from '../../core/index.js';

/** One connection of our own: every statement commits by itself. */
export interface Session {
  query(sql: string, parameters?: unknown[]): Promise<unknown>;
}

/** What the store does to the lease table, in the words of one dialect. Keys are given as they are stored. */
export interface LeaseStatements {
  readonly create: readonly string[];
  /** Rejects as the database does when the table cannot hold leases; resolves with a reason of ours, or null. */
  check(session: Session): Promise<string | null>;
  tryAcquire(session: Session, claim: Claim): Promise<Grant | Busy>;
  /** The claims that were renewed, as {@link grantName}. */
  renew(session: Session, claims: readonly Claim[]): Promise<ReadonlySet<string>>;
  /** True when the grant was there and has ended. */
  release(session: Session, request: ReleaseRequest): Promise<boolean>;
}

export interface Row {
  readonly [column: string]: unknown;
}

export async function rowsOf(
  session: Session,
  sql: string,
  parameters: unknown[] = [],
): Promise<readonly Row[]> {
  return (await session.query(sql, parameters)) as readonly Row[];
}

/** Owner ids are hexadecimal, so the first space ends them. */
export function grantName(ownerId: unknown, key: unknown): string {
  return `${String(ownerId)} ${String(key)}`;
}

/** Tokens are read as text: drivers round large numbers or give them back as strings, as they are configured. */
export function grantOf(token: unknown): Grant {
  const number = Number(token);
  if (typeof token === 'string' && Number.isSafeInteger(number) && number > 0)
    return { kind: 'granted', token: number };
  throw new Error(
    `The lease table holds the token ${String(token)}, which is none: tokens are safe integers. Repair or delete that row.`,
  );
}

/** A snapshot may be older than the grant that stood in the way; what it says of the past tells nothing about the future. */
export function busyFor(remainingMs: unknown): Busy {
  return {
    kind: 'busy',
    retryAfterMs: typeof remainingMs === 'number' && remainingMs > 0 ? remainingMs : null,
  };
}
