import { AsyncLocalStorage } from 'node:async_hooks';

import { contextLeases, requireLease } from './context.js';
import { FencedOutError, LockConfigInvalidError, type Outcome } from './errors.js';

/**
 * The token of a hold that belongs to somebody else, who has asked for the work that shows it. Whose it is, and whether
 * that hold still lasts, cannot be known here: only a fence can tell whether it is the newest.
 */
export interface HandedOverToken {
  /** The key as it was locked, without namespace and scope. */
  readonly key: string;
  readonly token: number;
}

/** Work that shows tokens which were handed over. Once it has ended, what it left behind shows them no more. */
class HandOver {
  over = false;

  constructor(
    readonly tokens: readonly HandedOverToken[],
    readonly outer: HandOver | undefined,
  ) {}
}

const STORAGE = Symbol.for('nestjs-distributed-lock/handed-over');
const shared = globalThis as { [STORAGE]?: AsyncLocalStorage<HandOver> };

/** One per process: with two copies of the package, both still see one call chain. */
const storage = (shared[STORAGE] ??= new AsyncLocalStorage<HandOver>());

/** A {@link HandOver} from outside, for work that is no single function, such as a stream. */
export interface OpenHandOver {
  run<T>(work: () => T): T;
  end(): void;
}

/**
 * Begins work that shows these tokens.
 *
 * @throws {FencedOutError} the work around it shows another token for one of the keys
 */
export function beginHandOver(tokens: readonly HandedOverToken[]): OpenHandOver {
  for (const one of tokens) requireAgreement(one, handedOverToken(one.key), 'not-started');
  const handOver = new HandOver(tokens, living(storage.getStore()));
  return {
    run: (work) => storage.run(handOver, work),
    end: () => void (handOver.over = true),
  };
}

/** Runs `work`, which shows these tokens, to its end. @throws as {@link beginHandOver}; `work` did not run */
export async function withHandedOver<T>(
  tokens: readonly HandedOverToken[],
  work: () => Promise<T> | T,
): Promise<T> {
  const handOver = beginHandOver(tokens);
  try {
    return await handOver.run(work);
  } finally {
    handOver.end();
  }
}

/** The tokens that were handed over to this call chain, each key once. */
export function handedOverTokens(): readonly HandedOverToken[] {
  const tokens = new Map<string, HandedOverToken>();
  for (let handOver = living(storage.getStore()); handOver; handOver = living(handOver.outer)) {
    for (const one of handOver.tokens) if (!tokens.has(one.key)) tokens.set(one.key, one);
  }
  return [...tokens.values()];
}

export function handedOverToken(key: string): HandedOverToken | undefined {
  return handedOverTokens().find((one) => one.key === key);
}

/**
 * The token that this call chain may show for `key`, or for the only key that it has one for: that of the hold, else the
 * one that was handed over.
 *
 * @throws {LeaseLostError | LeaseUncertainError} a stale holder stops here
 * @throws {LockNotHeldError} there is none: a missing token would be an unfenced call
 * @throws {LockConfigInvalidError} no key was given and there are several
 * @throws {FencedOutError} the hold has another token than the one that was handed over
 */
export function requireToken(key?: string): HandedOverToken {
  const held = contextLeases().filter((lease) => lease.state.kind !== 'released');
  const keys = new Set([...held, ...handedOverTokens()].map((one) => one.key));
  if (key === undefined && keys.size > 1) throw ambiguous([...keys]);
  const given = handedOverToken(key ?? [...keys][0] ?? '');
  if (given && !held.some((lease) => lease.key === given.key)) return given;
  const lease = requireLease(key);
  requireAgreement(lease, given);
  return lease;
}

/** @throws {FencedOutError} two tokens for one key: one of them is stale, and nobody here knows which */
function requireAgreement(
  { key, token }: HandedOverToken,
  other: HandedOverToken | undefined,
  outcome?: Outcome,
): void {
  if (!other || other.token === token) return;
  throw new FencedOutError(
    `Two tokens for "${key}" meet here, ${token} and ${other.token}: one of the two calls is stale. Nothing was sent and ` +
      'nothing was written; stop here and read the data again.',
    { key, outcome },
  );
}

function living(handOver: HandOver | undefined): HandOver | undefined {
  let found = handOver;
  while (found?.over) found = found.outer;
  return found;
}

function ambiguous(keys: readonly string[]): LockConfigInvalidError {
  const names = keys.map((key) => `"${key}"`).join(', ');
  return new LockConfigInvalidError(
    `Several locks are held here (${names}); name the one you mean: tokenFor(key), fencingHeaders(key).`,
  );
}
