import { hasCode } from '../core/index.js';
import type { CrashVerdict, ResolvedOptions } from './idempotency-options.js';
import type { RecordEnding, StoredResult } from './idempotency-store.js';
import type { Attempt } from './attempt.js';
import type { CallContext } from './owned-record.js';
import { keepResult, type ResultRules } from './stored-result.js';

/** After these, a newer owner may be at work on the same thing: what the body did is unknown. */
const UNKNOWN_OUTCOME = ['LEASE_LOST', 'LEASE_UNCERTAIN', 'FENCED_OUT', 'IDEMPOTENCY_LEASE_LOST'] as const;

/** In which way an attempt leaves its record. */
export class AttemptEndings<T> {
  constructor(
    private readonly context: CallContext,
    private readonly options: ResolvedOptions<T>,
    private readonly results: ResultRules,
  ) {}

  async done(value: T): Promise<RecordEnding> {
    const kept = await keepResult(this.context.identity.id, 'value', value, this.results);
    if (kept.result.outcome === 'omitted') {
      this.context.tell({ type: 'result-omitted', cause: kept.omittedBecause });
    }
    return this.#done(kept.result);
  }

  freed(countsAttempt: boolean): RecordEnding {
    return { kind: 'freed', countsAttempt, keepMs: this.options.retentionMs };
  }

  get abandoned(): RecordEnding {
    return { kind: 'abandoned', keepMs: this.options.unknownRetentionMs };
  }

  /** @param begun whether the body was entered */
  async after(error: unknown, begun: boolean): Promise<RecordEnding> {
    if (!begun) return this.freed(false);
    if (hasCode(error, ...UNKNOWN_OUTCOME)) return { kind: 'lapsed', countsAttempt: true };
    const description = this.options.finalErrors?.describe(error);
    if (description === undefined) return this.freed(true);
    const { result } = await keepResult(this.context.identity.id, 'error', description, this.results);
    return result.outcome === 'omitted' ? this.freed(true) : this.#done(result);
  }

  #done(result: StoredResult): RecordEnding {
    return { kind: 'done', result, keepMs: this.options.retentionMs };
  }
}

/** What is to become of an attempt whose predecessor crashed. */
export async function crashVerdict<T>(
  { onCrash }: ResolvedOptions<T>,
  attempt: Attempt,
): Promise<CrashVerdict<T>> {
  return attempt.takenOver && typeof onCrash === 'function' ? onCrash(attempt) : 'rerun';
}
