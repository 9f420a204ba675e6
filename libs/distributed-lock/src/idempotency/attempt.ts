import { AsyncLocalStorage } from 'node:async_hooks';

/** One run of a body, as the body sees it. */
export interface Attempt {
  /** The user's key. */
  readonly key: string;
  /**
   * What to tell others, e.g. a payment provider, so that they do it once: namespace and key, the same in every attempt.
   *
   * @throws {IdempotencyLeaseLostError} a stale attempt stops here
   */
  readonly idempotencyKey: string;
  /** A key of its own for each further call that the body makes; `label` says which. Throws as `idempotencyKey` does. */
  idempotencyKeyFor(label: string): string;
  /** 1 for the first. Failed attempts count, those that never reached the body do not. */
  readonly attempt: number;
  /** Safe integer, larger than that of every earlier attempt: a fencing token of this record. */
  readonly fence: number;
  /** True when an earlier attempt crashed: what it did is unknown. */
  readonly takenOver: boolean;
  /** Aborts when the record's lease is lost. The body is not stopped: pass it on to what can be cancelled. */
  readonly signal: AbortSignal;
  /** @throws {IdempotencyLeaseLostError} the lease is over, so another attempt may be running */
  assertOwned(): void;
}

/** The attempts that a call chain is inside of, innermost first. */
interface Frame {
  readonly id: string;
  readonly attempt: Attempt;
  readonly isOver: () => boolean;
  readonly outer: Frame | undefined;
}

const STORAGE = Symbol.for('nestjs-distributed-lock/idempotency');
const shared = globalThis as { [STORAGE]?: AsyncLocalStorage<Frame> };

/** One per process: with two copies of the package, both still see one call chain. */
const storage = (shared[STORAGE] ??= new AsyncLocalStorage<Frame>());

/** The attempt that this call chain runs in; undefined outside, and once its body has ended. */
export function currentAttempt(): Attempt | undefined {
  return livingFrame(storage.getStore())?.attempt;
}

export function runsInside(id: string): boolean {
  for (let frame = livingFrame(storage.getStore()); frame; frame = frame.outer)
    if (frame.id === id) return true;
  return false;
}

/** Runs `work` inside of an attempt, until `isOver` says that it has ended. */
export function runInAttempt<T>(id: string, attempt: Attempt, isOver: () => boolean, work: () => T): T {
  return storage.run({ id, attempt, isOver, outer: livingFrame(storage.getStore()) }, work);
}

/** Leaves out the attempts that are over, also for chains that never end themselves. */
function livingFrame(frame: Frame | undefined): Frame | undefined {
  if (!frame) return undefined;
  const outer = livingFrame(frame.outer);
  if (frame.isOver()) return outer;
  return outer === frame.outer ? frame : { ...frame, outer };
}
