import { LeaseLostError, LeaseUncertainError, LockNotHeldError, StoreUnavailableError } from './errors.js';
import type { LossReason } from './lease-state.js';

/** What the messages need to know of a lease. */
interface Told {
  readonly key: string;
  readonly store: string;
  readonly heldMs: number;
}

export function leaseLost(
  lease: Told,
  reason: LossReason,
  result: { readonly value?: unknown; readonly cause?: unknown } = {},
): LeaseLostError {
  return new LeaseLostError(
    `Lock "${lease.key}" was lost while its holder was at work (${reason}): another owner may be running. ` +
      'What the work did is unknown; read the data again before retrying.',
    { ...detailsOf(lease), ...result, reason },
  );
}

export function leaseUncertain(lease: Told, why: string): LeaseUncertainError {
  return new LeaseUncertainError(
    `Lock "${lease.key}" cannot be relied on at the moment: ${why}. ` +
      'What was about to be done was not done; ask again after the next renewal.',
    detailsOf(lease),
  );
}

export function leaseReleased(lease: Told): LockNotHeldError {
  return new LockNotHeldError(
    `Lock "${lease.key}" has been released: this code outlived the call that held it. ` +
      'Await it inside that call, or take the lock anew.',
    detailsOf(lease),
  );
}

export function endedTooEarly(lease: Told, cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(
    `The lease of "${lease.key}" ended before the work under it could begin, and was given back. ` +
      'The work did not start; try again.',
    { key: lease.key, store: lease.store, cause },
  );
}

export function releaseUnanswered(lease: Told, ttlMs: number, cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(
    `Store "${lease.store}" did not answer the release of "${lease.key}". The work itself is done; ` +
      `the key is free again within ${ttlMs} ms.`,
    { ...detailsOf(lease), outcome: 'committed', cause },
  );
}

function detailsOf({ key, store, heldMs }: Told): Told {
  return { key, store, heldMs };
}
