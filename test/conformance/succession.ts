import type { Lease, LockService } from 'nestjs-distributed-lock';

import { takenSoon } from './expect-soon.js';

/** Takes the key of a holder that is gone, and expects it to be free within its ttl and a second. */
export function succeed(successor: LockService, key: string, ttlMs: number): Promise<Lease> {
  return takenSoon(successor.acquire(key, { waitMs: 60_000 }), ttlMs + 1_000, successor);
}
