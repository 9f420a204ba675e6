import { Injectable, Logger } from '@nestjs/common';
import { Observable, Subject, Subscriber, type Observer, type Operator, type Subscription } from 'rxjs';

import type { LockEvent, LockEventHub } from '../core/index.js';
import { besideLockEvents, type IdempotencyService, type IdempotentCallEvent } from '../idempotency/index.js';

type Next<T> = ((value: T) => void) | null;
type Told = (() => void) | null;
type Failed = ((error: unknown) => void) | null;

const logger = new Logger('LockEvents');

/**
 * A stream whose subscribers harm nobody. RxJS rethrows what a subscriber throws from a timer, which ends the process;
 * here it is logged. Holds for `subscribe` on the stream and on what `pipe` makes of it.
 */
class HarmlessStream<T> extends Observable<T> {
  /** What operators call to make the stream that they return. */
  override lift<R>(operator?: Operator<T, R>): Observable<R> {
    const lifted = new HarmlessStream<R>();
    lifted.source = this as Observable<unknown> as Observable<R>;
    lifted.operator = operator as Operator<unknown, R>;
    return lifted;
  }

  override subscribe(observer?: Partial<Observer<T>> | Next<T>): Subscription;
  override subscribe(next?: Next<T>, error?: Failed, complete?: Told): Subscription;
  override subscribe(first?: Partial<Observer<T>> | Next<T>, error?: Failed, complete?: Told): Subscription {
    // An operator subscribes with a subscriber of its own, whose errors end up in the last observer.
    if (first instanceof Subscriber) return super.subscribe(first);
    const given = typeof first === 'object' && first !== null ? first : { next: first, error, complete };
    return super.subscribe({
      next: (value) => harmlessly(() => given.next?.(value)),
      error: (cause: unknown) => harmlessly(() => (given.error ?? fail)(cause)),
      complete: () => harmlessly(() => given.complete?.()),
    });
  }
}

function harmlessly(tell: () => void): void {
  try {
    tell();
  } catch (error) {
    logger.error('A subscriber threw; locks are not affected.', error);
  }
}

function fail(cause: unknown): never {
  throw cause;
}

/** Told apart by `type`, which begins with `idempotency-` for idempotent calls. Label metrics with `template` and `store`. */
export type ApplicationEvent = LockEvent | IdempotentCallEvent;

/**
 * Everything that happens to the application's locks and idempotent calls, as it happens. Ends when the application has
 * stopped.
 */
@Injectable()
export class LockEvents extends HarmlessStream<ApplicationEvent> {
  readonly #events: Subject<ApplicationEvent>;
  readonly #unsubscribe: readonly (() => void)[];

  constructor(hub: LockEventHub, idempotency?: Pick<IdempotencyService, 'subscribe' | 'storeKind'>) {
    const events = new Subject<ApplicationEvent>();
    super((subscriber) => events.subscribe(subscriber));
    this.#events = events;
    this.#unsubscribe = [
      hub.subscribe((event) => events.next(event)),
      ...(idempotency
        ? [idempotency.subscribe((event) => events.next(besideLockEvents(event, idempotency.storeKind)))]
        : []),
    ];
  }

  /** Completes the stream for all subscribers. */
  end(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#events.complete();
  }
}
