import { LockConfigInvalidError } from './errors.js';
import type { LockStore } from './lock-store.js';

/** Options that an application may set once for all locks. */
export interface LockDefaults {
  /**
   * How long the store keeps the key if this process dies or stops, in milliseconds. Default 15 000.
   *
   * Renewed every third of it while the body runs: it is the tolerated pause, not the length of the work.
   */
  readonly ttlMs?: number;
  /** How long to wait for a busy key, in milliseconds. 0 is one try, Infinity waits for ever. Default 5 000. */
  readonly waitMs?: number;
  /** After this many milliseconds the lease is not renewed and ends as lost, reason `max-hold`. Default: no limit. */
  readonly maxHoldMs?: number;
}

export interface LockOptions extends LockDefaults {
  /**
   * Keeps the key taken for this long from the grant on, also after release and shutdown: once per tick across clocks
   * that differ. At most `ttlMs`. Default 0.
   */
  readonly minHoldMs?: number;
  /** Name of the store. Default `default`. */
  readonly store?: StoreName;
  /** `'global'` leaves the configured scope out of the key, for work that belongs to no tenant. */
  readonly scope?: 'global';
  /** Ends the wait for the lock. It does not reach the body: pass it on yourself. */
  readonly signal?: AbortSignal;
}

/**
 * The names of the configured stores, filled in by the application, so that a misspelt name does not compile:
 * `declare module 'nestjs-distributed-lock' { interface LockStores { invoices: true } }`.
 */
// eslint-disable-next-line @typescript-eslint/no-empty-object-type -- filled by users
export interface LockStores {}

/** Any text as long as nobody has named the stores. */
export type StoreName = [keyof LockStores] extends [never] ? string : keyof (LockStores & { default: true });

/** Options as the lock service works with them. */
export interface LockTiming {
  readonly ttlMs: number;
  readonly waitMs: number;
  readonly minHoldMs: number;
  readonly maxHoldMs: number;
}

const TIMING_DEFAULTS = { ttlMs: 15_000, waitMs: 5_000, minHoldMs: 0, maxHoldMs: Infinity } as const;

/**
 * Fills in defaults and refuses what makes no sense. Only undefined means "not given": 0 is a value.
 *
 * @throws {LockConfigInvalidError} names the option and what it takes
 */
export function resolveTiming(options: LockOptions, defaults: LockDefaults, store: LockStore): LockTiming {
  const ttlMs = given(options.ttlMs, defaults.ttlMs, TIMING_DEFAULTS.ttlMs);
  const waitMs = given(options.waitMs, defaults.waitMs, TIMING_DEFAULTS.waitMs);
  const minHoldMs = given(options.minHoldMs, undefined, TIMING_DEFAULTS.minHoldMs);
  const maxHoldMs = given(options.maxHoldMs, defaults.maxHoldMs, TIMING_DEFAULTS.maxHoldMs);
  requireDurationMs('ttlMs', ttlMs, { atLeast: store.minTtlMs, atMost: store.maxTtlMs });
  requireDurationMs('waitMs', waitMs, { atLeast: 0, infinite: true });
  requireDurationMs('minHoldMs', minHoldMs, { atLeast: 0 });
  requireDurationMs('maxHoldMs', maxHoldMs, { atLeast: 1, infinite: true });
  if (minHoldMs > ttlMs) {
    throw new LockConfigInvalidError(
      `minHoldMs (${minHoldMs}) is longer than ttlMs (${ttlMs}): a crash would free the key too early. ` +
        'Raise ttlMs to at least minHoldMs.',
    );
  }
  if (minHoldMs > 0 && !store.keepsReleasedKeys) {
    throw new LockConfigInvalidError(
      `A ${store.kind} store cannot keep a key after its release; leave minHoldMs out or use another store.`,
    );
  }
  return { ttlMs, waitMs, minHoldMs, maxHoldMs };
}

/** Null is a value, and no number of milliseconds. */
function given(option: number | undefined, fallback: number | undefined, last: number): number {
  if (option !== undefined) return option;
  return fallback !== undefined ? fallback : last;
}

/** @throws {LockConfigInvalidError} unless `value` is a number of milliseconds within the limits */
export function requireDurationMs(
  name: string,
  value: unknown,
  limits: {
    readonly atLeast: number;
    readonly atMost?: number | undefined;
    readonly infinite?: boolean;
  },
): asserts value is number {
  const isNumber = typeof value === 'number' && !Number.isNaN(value);
  const finite = isNumber && (Number.isFinite(value) || limits.infinite === true);
  const { atLeast, atMost = Infinity } = limits;
  const fits = finite && value >= atLeast && value <= atMost;
  if (fits) return;
  const shown = typeof value === 'string' ? `'${value}'` : String(value);
  throw new LockConfigInvalidError(
    `${name} is ${shown}; write a number of milliseconds, at least ${atLeast}` +
      `${atMost < Infinity ? `, at most ${atMost}` : ''}` +
      `${limits.infinite ? ' (Infinity is allowed)' : ' and not Infinity'}.`,
  );
}
