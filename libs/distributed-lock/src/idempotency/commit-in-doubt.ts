import { StoreUnavailableError } from '../core/index.js';
import type { CallContext } from './owned-record.js';

/** The transaction had everything it needed, and neither its COMMIT nor the record was answered. */
export function commitInDoubt(
  { identity: { key }, store }: CallContext,
  cause: unknown,
): StoreUnavailableError {
  return new StoreUnavailableError(
    `The database did not say whether the transaction of "${key}" was committed. Either all of it has happened or none; ` +
      'send the same key again to learn which.',
    { key, store: store.kind, outcome: 'unknown', cause },
  );
}
