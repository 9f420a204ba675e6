import type { Clock, Timer } from './clock.js';

export type WaitEnd = 'woken' | 'timed-out' | 'aborted';

/** What may end a wait from outside. An infinite `timeoutMs` arms no timer. */
export interface WaitLimit {
  readonly timeoutMs: number;
  readonly signals: readonly AbortSignal[];
}

/** A wait that ends exactly once and leaves neither timer nor listener behind. */
export interface Wait {
  readonly ended: Promise<WaitEnd>;
  /** False when the wait had ended already, so that whatever was to be handed over needs another taker. */
  wake(): boolean;
}

export function startWait(clock: Clock, { timeoutMs, signals }: WaitLimit): Wait {
  let resolve!: (end: WaitEnd) => void;
  let timer: Timer | undefined;
  const ended = new Promise<WaitEnd>((r) => (resolve = r));
  const onAbort = (): void => void end('aborted');
  let open = true;
  const end = (how: WaitEnd): boolean => {
    if (!open) return false;
    open = false;
    timer?.cancel();
    for (const signal of signals) signal.removeEventListener('abort', onAbort);
    resolve(how);
    return true;
  };
  for (const signal of signals) signal.addEventListener('abort', onAbort);
  if (signals.some((signal) => signal.aborted)) end('aborted');
  else if (Number.isFinite(timeoutMs)) timer = clock.schedule(timeoutMs, () => end('timed-out'));
  return { ended, wake: () => end('woken') };
}

/** The store did not answer in time. Whether it did what was asked is unknown. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';

  constructor(timeoutMs: number) {
    super(`no answer within ${Math.round(timeoutMs)} ms`);
  }
}

/**
 * The answer to `command`; or a rejection with {@link NoAnswer} after `timeoutMs`, and when one of `signals` aborts,
 * whatever the driver's own limits are. The command itself is not stopped; what it comes to later is dropped.
 */
export function withinTime<T>(
  clock: Clock,
  timeoutMs: number,
  command: () => Promise<T>,
  signals: readonly AbortSignal[] = [],
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const limit = startWait(clock, { timeoutMs, signals });
    void limit.ended.then((end) => {
      if (end !== 'woken') reject(new NoAnswer(timeoutMs));
    });
    begin(command)
      .finally(() => limit.wake())
      .then(resolve, reject);
  });
}

/** A driver may throw before it returns a promise; that is a rejection like any other. */
async function begin<T>(command: () => Promise<T>): Promise<T> {
  return command();
}
