import { LockConfigInvalidError, LockNotHeldError } from './errors.js';
import type { Hold } from './hold.js';
import type { Lease } from './lease.js';
import { currentFrame } from './section.js';

/**
 * The leases that this call chain runs under, innermost first and each once; also those that have ended meanwhile,
 * because a late write should be told which lock it outlived.
 */
export function contextLeases(): readonly Lease[] {
  const leases = new Set<Lease>();
  for (let frame = currentFrame(); frame; frame = frame.outer) leases.add((frame.section.hold as Hold).lease);
  return [...leases];
}

/**
 * The lease that this call chain holds; undefined when it holds none, or none on `key`, and once it was released.
 *
 * `key` is the key as it was locked, e.g. `'invoice:42'` or `InvoiceKey({ id: 42 })`.
 *
 * @throws {LeaseLostError | LeaseUncertainError} a stale holder stops here
 * @throws {LockConfigInvalidError} no key was given and several are held
 */
export function currentLease(key?: string): Lease | undefined {
  const leases = contextLeases().filter((lease) => lease.state.kind !== 'released');
  if (key === undefined && leases.length > 1) throw ambiguous(leases);
  const lease = key === undefined ? leases[0] : leases.find((candidate) => candidate.key === key);
  lease?.assertHeld();
  return lease;
}

/**
 * As {@link currentLease}, for code that must not go on without one.
 *
 * @throws {LockNotHeldError} no such lock is held: a missing token would be an unfenced call
 */
export function requireLease(key?: string): Lease {
  const lease = currentLease(key);
  if (lease) return lease;
  const outlived = contextLeases()[0];
  throw new LockNotHeldError(
    outlived && key === undefined
      ? `Lock "${outlived.key}" has been released: this code outlived the call that held it.`
      : `No lock${key === undefined ? '' : ` on "${key}"`} is held here. Call this inside a @Locked method or withLock().`,
    { key },
  );
}

function ambiguous(leases: readonly Lease[]): LockConfigInvalidError {
  const keys = leases.map((lease) => `"${lease.key}"`).join(', ');
  return new LockConfigInvalidError(
    `Several locks are held here (${keys}); name the one you mean: tokenFor(key).`,
  );
}
