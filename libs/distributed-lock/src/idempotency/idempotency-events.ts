import type { LossReason } from '../core/index.js';

/** Everything that happens to idempotent calls. Label metrics with `label`, never with `key`. */
export type IdempotencyEvent = { readonly key: string; readonly label: string } & IdempotencyHappening;

/** An event without its subject. Times are durations in milliseconds. */
export type IdempotencyHappening =
  | {
      readonly type: 'claimed';
      readonly attempt: number;
      readonly fence: number;
      readonly takenOver: boolean;
    }
  /** A duplicate was prevented: the stored answer was given. */
  | { readonly type: 'replayed'; readonly waitedMs: number }
  | { readonly type: 'in-progress'; readonly waitedMs: number; readonly retryAfterMs: number | null }
  | { readonly type: 'key-reused' }
  | { readonly type: 'outcome-unknown' }
  | { readonly type: 'completed'; readonly attempt: number; readonly ranForMs: number }
  | {
      readonly type: 'failed';
      readonly attempt: number;
      readonly ending: 'freed' | 'lapsed' | 'done';
      readonly cause: unknown;
    }
  | { readonly type: 'lease-lost'; readonly attempt: number; readonly reason: LossReason }
  /** The body finished, and later callers will learn that, but not what it returned. */
  | { readonly type: 'result-omitted'; readonly cause: unknown }
  /** A result holds an instance that will come back as a plain object. */
  | { readonly type: 'class-not-registered'; readonly className: string }
  | {
      readonly type: 'store-unanswered';
      readonly step: 'claim' | 'renew' | 'settle';
      readonly cause: unknown;
    };

export type IdempotencyListener = (event: IdempotencyEvent) => void;
