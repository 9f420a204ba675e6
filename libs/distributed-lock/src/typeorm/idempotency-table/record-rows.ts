import {
  sameRequest,
  type ClaimAnswer,
  type RecordClaim,
  type StoredRecord,
  type StoredResult,
} from '../../idempotency/index.js';
import type { Session } from './record-statements.js';

/** One record, as every dialect selects it. Fences come as text: drivers round large numbers, as they are configured. */
export interface RecordRow {
  readonly state: 'absent' | 'running' | 'done' | 'abandoned';
  readonly owner_id: string | null;
  readonly fence: string;
  readonly attempt: number;
  readonly taken_over: number;
  readonly fingerprint: string;
  readonly label: string;
  /** Null unless running. */
  readonly lease_ms: number | null;
  readonly expires_in_ms: number;
  readonly outcome: StoredResult['outcome'] | null;
  readonly codec: string | null;
  readonly body: string | null;
}

export async function rowsOf<Row>(
  session: Session,
  sql: string,
  parameters: unknown[] = [],
): Promise<readonly Row[]> {
  return (await session.query(sql, parameters)) as readonly Row[];
}

/** Null for a row that says what can no longer be true: it was read before the change that was in the way. */
export function answerOf(row: RecordRow | undefined, claim: RecordClaim): ClaimAnswer | null {
  if (!row || row.state === 'absent') return null;
  if (row.state === 'running' && row.owner_id === claim.ownerId) {
    const { attempt } = row;
    return { kind: 'claimed', fence: Number(row.fence), attempt, takenOver: row.taken_over === 1 };
  }
  if (!sameRequest(row.fingerprint, claim.fingerprint)) return { kind: 'mismatch' };
  if (row.state === 'done') return { kind: 'done', result: resultOf(row) };
  if (row.state === 'abandoned') return { kind: 'abandoned' };
  return row.lease_ms !== null && row.lease_ms > 0 ? { kind: 'running', retryAfterMs: row.lease_ms } : null;
}

export function recordOf(row: RecordRow | undefined): StoredRecord | null {
  if (!row) return null;
  const { attempt, fingerprint, label, lease_ms: leaseMs } = row;
  const state = row.state === 'running' && (leaseMs ?? 0) <= 0 ? 'lapsed' : row.state;
  return {
    state,
    attempt,
    fence: Number(row.fence),
    fingerprint,
    label,
    leaseRemainingMs: state === 'running' ? leaseMs : null,
    expiresInMs: row.expires_in_ms,
    result: state === 'done' ? resultOf(row) : null,
  };
}

function resultOf({ outcome, codec, body }: RecordRow): StoredResult {
  return { outcome: outcome ?? 'omitted', codec: codec ?? '', body: body ?? '' };
}
