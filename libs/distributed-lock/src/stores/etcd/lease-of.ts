import { createHash } from 'node:crypto';

const LARGEST_ID = 2n ** 63n - 1n;

/**
 * The id of the lease that an owner's key lives under: made from the owner id, so that whoever knows that can end the
 * lease, also before the answer to its grant has arrived. With `seconds`: the one that it is moved to for another ttl.
 */
export function leaseOf(owner: { readonly key: string; readonly ownerId: string }, seconds?: number): string {
  const name = JSON.stringify([owner.key, owner.ownerId, seconds ?? null]);
  const digest = createHash('sha256').update(name).digest();
  const id = digest.readBigUInt64BE() & LARGEST_ID;
  return String(id === 0n ? 1n : id); // 0 would have etcd choose
}
