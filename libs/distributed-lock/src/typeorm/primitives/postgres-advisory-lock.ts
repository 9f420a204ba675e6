import { createHash } from 'node:crypto';

import type { EntityManager } from 'typeorm';

import { LockTimeoutError } from '../../core/index.js';
import { transactionWithin, withLockLimit } from './bounded.js';
import type { AdvisoryLock } from './locked-transaction.js';

/** READ COMMITTED: at a higher level the snapshot would be taken before the lock, and show what was there before it. */
export const postgresAdvisoryLock: AdvisoryLock = (dataSource, key, timeoutMs, work) =>
  transactionWithin(dataSource.manager, timeoutMs, async (manager, remainingMs) => {
    await (timeoutMs === 0 ? tryOnce(manager, key) : lock(manager, key, remainingMs));
    return work(manager);
  });

function lock(manager: EntityManager, key: string, timeoutMs: number): Promise<unknown> {
  return withLockLimit(manager, timeoutMs, () =>
    manager.query('SELECT pg_advisory_xact_lock(CAST($1 AS bigint))', [digestOf(key)]),
  );
}

async function tryOnce(manager: EntityManager, key: string): Promise<void> {
  const [row]: { readonly got: boolean }[] = await manager.query(
    'SELECT pg_try_advisory_xact_lock(CAST($1 AS bigint)) AS got',
    [digestOf(key)],
  );
  if (row?.got !== true) throw new LockTimeoutError('taken', { key, retryAfterMs: null });
}

/** Two keys of a million have the same one with a probability of 1 : 37 000 000; they would only wait for each other. */
function digestOf(key: string): string {
  return createHash('sha256').update(`nestjs-distributed-lock:${key}`).digest().readBigInt64BE().toString();
}
