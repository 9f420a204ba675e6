import type { StoredRecord, StoredResult } from './idempotency-store.js';

/** A record as an operator sees it. What the body returned stays out of it. */
export interface RecordView extends Omit<StoredRecord, 'result' | 'fingerprint'> {
  /** Null unless done. */
  readonly outcome: StoredResult['outcome'] | null;
  /** Size of the stored result; 0 unless done. */
  readonly resultBytes: number;
}

export function viewOf({ result, fingerprint: _, ...record }: StoredRecord): RecordView {
  return { ...record, outcome: result?.outcome ?? null, resultBytes: Buffer.byteLength(result?.body ?? '') };
}
