import { IdempotencyResultOmittedError } from './idempotency-errors.js';
import type { ResolvedOptions } from './idempotency-options.js';
import type { StoredResult } from './idempotency-store.js';
import type { CallContext } from './owned-record.js';
import { readResult, type ResultRules } from './stored-result.js';

/** Gives what is stored: returns a value, at once or later, or throws an error. */
export function storedAnswer<T>(
  context: CallContext,
  stored: StoredResult,
  { finalErrors }: ResolvedOptions<T>,
  rules: ResultRules,
): T | Promise<T> {
  const given = (answer: unknown): T => {
    if (stored.outcome === 'error') throw finalErrors?.revive(answer);
    return answer as T;
  };
  const lost = (cause: unknown): never => {
    throw omitted(context, cause);
  };
  let answer: unknown;
  try {
    if (stored.outcome === 'omitted') throw new TypeError('the result was not stored');
    if (stored.outcome === 'error' && !finalErrors)
      throw new TypeError('a failure is stored, and finalErrors is not given');
    answer = readResult(context.identity.id, stored, rules);
  } catch (cause) {
    return lost(cause);
  }
  return answer instanceof Promise ? answer.then(given, lost) : given(answer);
}

function omitted({ identity: { key }, store }: CallContext, cause: unknown): IdempotencyResultOmittedError {
  return new IdempotencyResultOmittedError(
    `"${key}" was carried out earlier, and its result cannot be given again: ${(cause as Error).message}. ` +
      'This call did nothing; read the result where the earlier one left it.',
    { key, store: store.kind, cause },
  );
}
