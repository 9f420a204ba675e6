import { LockConfigInvalidError, requireDurationMs } from '../core/index.js';
import type { Attempt } from './attempt.js';
import type { IdempotencyStore } from './idempotency-store.js';
import { NO_FINGERPRINT } from './fingerprint.js';
import type { TransactionalOptions } from './transactional-options.js';
import type { ResultClasses } from './result-classes.js';

/** What a hook found out about the attempt that crashed. */
export type CrashVerdict<T> = 'rerun' | 'reject' | { readonly completed: T };

/** Asks the outside world what an attempt did before it crashed, e.g. "is there a charge with this idempotency key?". */
export type CrashHook<T> = (attempt: Attempt) => CrashVerdict<T> | Promise<CrashVerdict<T>>;

/** Failures that are answers: "card declined" is given to later callers as well. */
export interface FinalErrors {
  /** What to keep of an error; undefined for one that another attempt may overcome. */
  describe(error: unknown): unknown;
  /** What to throw for what was kept. */
  revive(description: unknown): unknown;
}

/** Options that an application may set once for all calls. */
export interface IdempotencyDefaults {
  /**
   * How long the store keeps others away if this process dies or stops, in milliseconds. Default 30 000.
   *
   * Renewed every third of it while the body runs: it is the tolerated pause, not the length of the work.
   */
  readonly leaseMs?: number;
  /** How long an answer is given again, from completion on, in milliseconds. Default 24 hours. */
  readonly retentionMs?: number;
  /** How long a record with an unknown outcome is kept, in milliseconds. Default 30 days. */
  readonly unknownRetentionMs?: number;
  /** How long to wait for the same call at work elsewhere, in milliseconds; 0 asks once. Default 10 000. */
  readonly waitMs?: number;
  /** A crashed call that has begun this often is not run again: its outcome stays unknown. Default 5. */
  readonly maxAttempts?: number;
  /** A larger result is not kept, and later callers get `IDEMPOTENCY_RESULT_OMITTED`. Default 262 144. */
  readonly maxResultBytes?: number;
}

export interface RunOnceOptions<T> extends IdempotencyDefaults {
  /** From `fingerprintOf(data)`: the same key with another fingerprint is refused. Default: not compared. */
  readonly fingerprint?: string;
  /**
   * What to do when an earlier attempt crashed, or lost its lock or its record: nobody knows how far it came. Default
   * `'rerun'`, which is right when everything outside is told `attempt.idempotencyKey`. `'reject'` runs nothing and throws
   * `IDEMPOTENCY_OUTCOME_UNKNOWN` until an operator has settled the record.
   */
  readonly onCrash?: 'rerun' | 'reject' | CrashHook<T>;
  /** Default: no failure is kept; the next call runs again. */
  readonly finalErrors?: FinalErrors;
  /** Classes whose instances come back as such. Others come back as plain objects. */
  readonly classes?: ResultClasses;
  /**
   * Runs between the claim and the body, e.g. `(body) => locks.withLock(key, body)`. If it ends without having called the
   * body, nothing has happened: the record is freed, and no attempt is counted.
   */
  readonly around?: (body: () => Promise<T>) => Promise<T>;
  /**
   * Runs the body in a transaction of the database in which the store keeps its records, and completes the record as the
   * last statement of that: what the body writes there happens exactly once. It has to write through the manager of that
   * transaction (`transactionManager()` of `./typeorm`). True stands for `{ claim: 'first' }`. Default: no transaction.
   */
  readonly transactional?: boolean | TransactionalOptions;
  /** Ends the wait for another caller. It does not reach the body. */
  readonly signal?: AbortSignal;
}

/** Options as the service works with them. */
export type ResolvedOptions<T> = Required<IdempotencyDefaults> &
  Omit<RunOnceOptions<T>, keyof IdempotencyDefaults | 'transactional'> & {
    readonly fingerprint: string;
    readonly onCrash: 'rerun' | 'reject' | CrashHook<T>;
    readonly transactional: TransactionalOptions | undefined;
    /** How long a record without a result outlives its lease. */
    readonly keepMs: number;
  };

const DAY_MS = 24 * 60 * 60 * 1_000;
const DEFAULTS: Required<IdempotencyDefaults> = {
  leaseMs: 30_000,
  retentionMs: DAY_MS,
  unknownRetentionMs: 30 * DAY_MS,
  waitMs: 10_000,
  maxAttempts: 5,
  maxResultBytes: 256 * 1_024,
};

/**
 * Fills in defaults and refuses what makes no sense. Only undefined means "not given": 0 is a value.
 *
 * @throws {LockConfigInvalidError} names the option and what it takes
 */
export function resolveOptions<T>(
  options: RunOnceOptions<T>,
  defaults: Required<IdempotencyDefaults>,
  store: IdempotencyStore,
): ResolvedOptions<T> {
  const times = withDefaults(options, defaults);
  requireDurationMs('leaseMs', times.leaseMs, { atLeast: store.minLeaseMs });
  requireDurationMs('retentionMs', times.retentionMs, { atLeast: 1 });
  requireDurationMs('unknownRetentionMs', times.unknownRetentionMs, { atLeast: 1 });
  requireDurationMs('waitMs', times.waitMs, { atLeast: 0, infinite: true });
  requireCount('maxAttempts', times.maxAttempts);
  requireCount('maxResultBytes', times.maxResultBytes);
  const { fingerprint = NO_FINGERPRINT, onCrash = 'rerun' } = options;
  requireCrashRule(onCrash);
  const keepMs = Math.max(times.retentionMs, times.unknownRetentionMs);
  // Written out: objects that are spread together are slow to make and to read, and this runs for every call.
  return {
    leaseMs: times.leaseMs,
    retentionMs: times.retentionMs,
    unknownRetentionMs: times.unknownRetentionMs,
    waitMs: times.waitMs,
    maxAttempts: times.maxAttempts,
    maxResultBytes: times.maxResultBytes,
    fingerprint,
    onCrash,
    keepMs,
    finalErrors: options.finalErrors,
    classes: options.classes,
    around: options.around,
    transactional: transactionalOf(options, store),
    signal: options.signal,
  };
}

/** What an application's defaults leave open is the library's choice. */
export function resolveDefaults(defaults: IdempotencyDefaults = {}): Required<IdempotencyDefaults> {
  return withDefaults(defaults, DEFAULTS);
}

/** Undefined alone means "not given". */
function withDefaults(given: IdempotencyDefaults, last: Required<IdempotencyDefaults>): typeof last {
  const { leaseMs, retentionMs, unknownRetentionMs, waitMs, maxAttempts, maxResultBytes } = last;
  return {
    leaseMs: given.leaseMs === undefined ? leaseMs : given.leaseMs,
    retentionMs: given.retentionMs === undefined ? retentionMs : given.retentionMs,
    unknownRetentionMs:
      given.unknownRetentionMs === undefined ? unknownRetentionMs : given.unknownRetentionMs,
    waitMs: given.waitMs === undefined ? waitMs : given.waitMs,
    maxAttempts: given.maxAttempts === undefined ? maxAttempts : given.maxAttempts,
    maxResultBytes: given.maxResultBytes === undefined ? maxResultBytes : given.maxResultBytes,
  };
}

function requireCount(name: string, value: unknown): void {
  if (Number.isSafeInteger(value) && (value as number) >= 1) return;
  const shown = typeof value === 'string' ? `'${value}'` : String(value);
  throw new LockConfigInvalidError(`${name} is ${shown}; write a whole number, at least 1.`);
}

const LEVELS: readonly unknown[] = ['READ UNCOMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'];

function transactionalOf<T>(
  { transactional }: RunOnceOptions<T>,
  store: IdempotencyStore,
): TransactionalOptions | undefined {
  if (transactional === undefined || transactional === false) return undefined;
  const options = transactional === true ? {} : transactional;
  const { claim = 'first', isolation } = options;
  if (claim !== 'first' && claim !== 'inside')
    throw new LockConfigInvalidError(`transactional.claim is ${String(claim)}; write 'first' or 'inside'.`);
  if (isolation !== undefined && !LEVELS.includes(isolation))
    throw new LockConfigInvalidError(
      `transactional.isolation is ${String(isolation)}; write one of ${LEVELS.join(', ')}.`,
    );
  if (store.transactions) return { ...options, claim };
  throw new LockConfigInvalidError(
    `transactional needs records in the database that the method writes to, and the store is "${store.kind}". Write ` +
      'idempotency: { store: typeormIdempotencyStore({ dataSource }) }, or leave transactional out.',
  );
}

function requireCrashRule(onCrash: unknown): void {
  if (onCrash === 'rerun' || onCrash === 'reject' || typeof onCrash === 'function') return;
  throw new LockConfigInvalidError(`onCrash is ${String(onCrash)}; write 'rerun', 'reject' or a function.`);
}
