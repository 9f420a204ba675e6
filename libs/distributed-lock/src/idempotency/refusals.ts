import { ShuttingDownError } from '../core/index.js';
import { IdempotencyReentrantError } from './idempotency-errors.js';
import type { CallContext } from './owned-record.js';

export function shuttingDown({ identity: { key }, store }: CallContext): ShuttingDownError {
  return new ShuttingDownError(
    `"${key}" was not begun: this process is stopping. Another replica will serve the call.`,
    { key, store: store.kind },
  );
}

export function reentrant({ identity: { key }, store }: CallContext): IdempotencyReentrantError {
  return new IdempotencyReentrantError(
    `"${key}" is being carried out by this very call chain, which would wait for itself. The inner call did nothing; ` +
      'give it a key of its own.',
    { key, store: store.kind },
  );
}
