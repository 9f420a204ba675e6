import type { DataSource } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';

/**
 * Replicas lag behind: what a new owner reads there may be from before its predecessor's last write.
 *
 * @throws {LockConfigInvalidError} the DataSource reads from replicas unless it is told otherwise
 */
export function requirePrimaryReads({ options }: DataSource): void {
  const { replication } = options as { readonly replication?: { readonly defaultMode?: string } };
  if (!replication || replication.defaultMode === 'master') return;
  throw new LockConfigInvalidError(
    "The DataSource reads from replicas, which may show a new owner old rows. Write replication: { defaultMode: 'master' }, " +
      "and ask for replicas where it does no harm: createQueryRunner('slave'). Where all reads under a lock go to the primary " +
      "already, or may be old, say so: replicaReads: 'allow'.",
  );
}
