import { setMaxListeners } from 'node:events';

import type { Clock, Timer } from './clock.js';

export type WaitEnd = 'woken' | 'timed-out' | 'aborted';

/** What may end a wait from outside. An infinite `timeoutMs` arms no timer. */
export interface WaitLimit {
  readonly timeoutMs: number;
  readonly signals: readonly AbortSignal[];
}

/** A wait that ends exactly once and leaves neither timer nor listener behind. */
export interface Wait {
  /** False when the wait had ended already, so that whatever was to be handed over needs another taker. */
  wake(): boolean;
}

/** Calls `onEnd` once; before this returns, if one of the signals has aborted already. */
export function startWait(
  clock: Clock,
  { timeoutMs, signals }: WaitLimit,
  onEnd: (how: WaitEnd) => void,
): Wait {
  let timer: Timer | undefined;
  let open = true;
  const onAbort = (): void => void end('aborted');
  const end = (how: WaitEnd): boolean => {
    if (!open) return false;
    open = false;
    timer?.cancel();
    for (const signal of signals) signal.removeEventListener('abort', onAbort);
    onEnd(how);
    return true;
  };
  // One signal may end thousands of waits at once. None of them leaks, so Node need not warn after ten.
  if (signals.length > 0) setMaxListeners(0, ...signals);
  for (const signal of signals) signal.addEventListener('abort', onAbort);
  if (signals.some((signal) => signal.aborted)) end('aborted');
  else if (Number.isFinite(timeoutMs)) timer = clock.schedule(timeoutMs, () => end('timed-out'));
  return { wake: () => end('woken') };
}

/** Waits until the limit ends it. */
export function pause(clock: Clock, limit: WaitLimit): Promise<WaitEnd> {
  return new Promise((resolve) => startWait(clock, limit, resolve));
}

/** Spreads retries over half to all of `delayMs`, so that many processes do not come back in step. */
export function jittered(delayMs: number): number {
  return delayMs * (0.5 + Math.random() / 2);
}

/** The store did not answer in time. Whether it did what was asked is unknown. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';

  constructor(timeoutMs: number) {
    super(`no answer within ${Math.round(timeoutMs)} ms`);
  }
}

const NO_SIGNALS: readonly AbortSignal[] = [];

/** What else is to be known of a command. */
export interface CommandRules {
  /** End the wait for its answer. */
  readonly signals?: readonly AbortSignal[];
  /** What to reject with, given the cause. */
  readonly explain?: (cause: unknown) => Error;
}

/**
 * The answer to `command`; or a rejection with {@link NoAnswer} after `timeoutMs`, and when one of `signals` aborts,
 * whatever the driver's own limits are. The command itself is not stopped; what it comes to later is dropped.
 */
export function withinTime<T>(
  clock: Clock,
  timeoutMs: number,
  command: () => Promise<T>,
  { signals = NO_SIGNALS, explain }: CommandRules = {},
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const fail = (cause: unknown): void => reject(explain ? explain(cause) : (cause as Error));
    const limit = startWait(clock, { timeoutMs, signals }, (end) => {
      if (end !== 'woken') fail(new NoAnswer(timeoutMs));
    });
    const failed = (cause: unknown): void => {
      if (limit.wake()) fail(cause);
    };
    try {
      command().then((answer) => {
        limit.wake();
        resolve(answer);
      }, failed);
    } catch (cause) {
      failed(cause); // a driver may throw before it returns a promise
    }
  });
}
