import { EMPTY, isObservable, Observable, of, Subject, takeUntil, type Subscriber } from 'rxjs';

import type { Lease } from '../core/index.js';
import type { LockedCall } from './locked-call.js';
import { wrongKind } from './result-kind.js';

/**
 * Every subscription is a call of its own: it takes the lock, and only then is the method asked for its source. A lost
 * lease unsubscribes from the source and is the stream's error.
 */
export function lockedObservable(call: LockedCall): Observable<unknown> {
  return new Observable((subscriber) => {
    const left = new AbortController();
    call
      .underLock((lease) => spanOf(call, lease, subscriber, left.signal), left.signal)
      .then(
        (outcome) => {
          if (outcome.ran) subscriber.complete();
          else subscriber.add(insteadOf(outcome.instead).subscribe(subscriber));
        },
        (error: unknown) => subscriber.error(error),
      );
    return () => left.abort();
  });
}

/** Settles when the source has ended or nobody listens any more. */
function spanOf(
  call: LockedCall,
  lease: Lease,
  subscriber: Subscriber<unknown>,
  left: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (left.aborted) return resolve();
    const source = call.invoke(lease);
    if (!isObservable(source)) throw wrongKind(call.site.label, 'observable', source);
    const over = new Subject<void>();
    const onLeft = (): void => over.next();
    const forget = lease.onStateChange(() => {
      const loss = lease.lossError();
      if (!loss) return;
      reject(loss);
      over.next();
    });
    left.addEventListener('abort', onLeft);
    const end = (settle: () => void): void => {
      left.removeEventListener('abort', onLeft);
      forget();
      settle();
    };
    source.pipe(takeUntil(over)).subscribe({
      // Asking reads the clocks: a holder that was stopped learns of the loss before anybody sees another value.
      next: (value) => {
        if (!lease.lossError()) subscriber.next(value);
      },
      error: (cause: Error) => end(() => reject(cause)),
      complete: () => end(resolve),
    });
  });
}

function insteadOf(instead: unknown): Observable<unknown> {
  if (isObservable(instead)) return instead;
  return instead === undefined ? EMPTY : of(instead);
}
