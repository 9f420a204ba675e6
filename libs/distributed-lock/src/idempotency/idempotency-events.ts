import { tellQuietly, type LockSubject, type LossReason } from '../core/index.js';

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
    }
  /** Expired records were deleted. `key` and `label` name the purge. */
  | { readonly type: 'purged'; readonly records: number }
  | { readonly type: 'purge-failed'; readonly cause: unknown };

export type IdempotencyListener = (event: IdempotencyEvent) => void;

type Prefixed<H> = H extends { readonly type: infer Type extends string }
  ? { readonly type: `idempotency-${Type}` } & Omit<H, 'type'>
  : never;

/**
 * What happens to an idempotent call, as it is told beside the events of locks: no `type` is one of theirs, and metrics are
 * labelled in the same way, with `template`, which is the call's label, and `store`, which is the kind of store.
 */
export type IdempotentCallEvent = LockSubject & Prefixed<IdempotencyHappening>;

export function besideLockEvents(event: IdempotencyEvent, store: string): IdempotentCallEvent {
  const { label, type, ...more } = event;
  return { ...more, type: `idempotency-${type}`, template: label, store } as IdempotentCallEvent;
}

/** Tells every listener. One that throws or rejects harms neither the call nor the other listeners. */
export class IdempotencyListeners {
  readonly #listeners = new Set<IdempotencyListener>();

  /** Returns the function that ends the subscription. */
  subscribe(listener: IdempotencyListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  tell({ key, label }: Pick<IdempotencyEvent, 'key' | 'label'>, happening: IdempotencyHappening): void {
    if (this.#listeners.size === 0) return;
    const event = { key, label, ...happening };
    for (const listener of [...this.#listeners]) tellQuietly(listener, event);
  }
}
