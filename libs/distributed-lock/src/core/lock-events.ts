import type { LossReason } from './lease-state.js';
import type { LockErrorCode } from './errors.js';

/** Which lock an event is about. Label metrics with `template` and `store`, never with `key`. */
export interface LockSubject {
  readonly key: string;
  /** The template that the key came from; of a plain string, what stands before its first colon, or all of it. */
  readonly template: string;
  readonly store: string;
}

/** Everything that happens to locks, leases and guarded writes. Times are durations in milliseconds. */
export type LockEvent = LockSubject & LockHappening;

/** An event without its subject. */
export type LockHappening =
  | {
      readonly type: 'acquired';
      readonly token: number;
      readonly waitedMs: number;
      readonly attempts: number;
    }
  | { readonly type: 'refused'; readonly code: LockErrorCode; readonly waitedMs: number }
  | { readonly type: 'skipped'; readonly retryAfterMs: number | null }
  | { readonly type: 'acquire-unanswered'; readonly cause: unknown }
  | { readonly type: 'renewed'; readonly token: number; readonly lateMs: number }
  | { readonly type: 'renewal-unanswered'; readonly token: number; readonly cause: unknown }
  | {
      readonly type: 'lease-lost';
      readonly token: number;
      readonly reason: LossReason;
      readonly heldMs: number;
    }
  | { readonly type: 'held-long'; readonly token: number; readonly heldMs: number }
  | { readonly type: 'released'; readonly token: number; readonly heldMs: number }
  | { readonly type: 'release-unanswered'; readonly token: number; readonly cause: unknown }
  | { readonly type: 'order-inversion'; readonly heldTemplate: string }
  | { readonly type: 'fence-raised'; readonly token: number }
  | { readonly type: 'stale-write-refused'; readonly token: number | null; readonly entity: string }
  | {
      readonly type: 'unfenced-write';
      readonly entity: string;
      readonly path: string;
      readonly refused: boolean;
    };

export type LockEventListener = (event: LockEvent) => void;

/** Tells every listener. One that throws or rejects harms neither the lock nor the other listeners. */
export class LockEventHub {
  readonly #listeners = new Set<LockEventListener>();

  /** Returns the function that ends the subscription. */
  subscribe(listener: LockEventListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  emit(event: LockEvent): void {
    for (const listener of [...this.#listeners]) tellQuietly(listener, event);
  }
}

/** Calls a listener whose author may have been careless: what it throws, or its promise rejects with, is dropped. */
export function tellQuietly<T>(listener: (news: T) => unknown, news: T): void {
  try {
    const result = listener(news);
    if (result !== undefined) Promise.resolve(result).catch(() => undefined);
  } catch {
    // A broken listener is its author's affair: the lock goes on, and so do the others.
  }
}
