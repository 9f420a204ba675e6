import type { Lease, LockService } from 'nestjs-distributed-lock';

const WAIT_MS = 60_000;
const LOOK_EVERY_MS = 50;
/** Acquisitions that a successor may need, each as slow as the slowest of those that nothing hindered. */
const ACQUISITIONS = 3;

/**
 * Takes the key of a holder that is gone, and expects it to be free within its ttl and a second. How much longer everything
 * takes on this machine at this time is measured beside, by acquisitions of a key that is free.
 */
export async function succeed(successor: LockService, key: string, ttlMs: number): Promise<Lease> {
  const goneAtMs = performance.now();
  let takenAtMs: number | undefined;
  const acquiring = successor.acquire(key, { waitMs: WAIT_MS });
  const taking = acquiring.finally(() => (takenAtMs = performance.now()));
  taking.catch(() => undefined);
  let slowestMs = 0;
  while (takenAtMs === undefined) {
    slowestMs = Math.max(slowestMs, await freeAcquisitionMs(successor, `${key} is free`));
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
  const lease = await taking;
  expect(takenAtMs - goneAtMs).toBeLessThan(ttlMs + 1_000 + ACQUISITIONS * slowestMs);
  return lease;
}

async function freeAcquisitionMs(service: LockService, key: string): Promise<number> {
  const startedAtMs = performance.now();
  await service.withLock(key, { waitMs: WAIT_MS }, () => undefined);
  return performance.now() - startedAtMs;
}
