import type { Lease } from 'nestjs-distributed-lock';

import { Lateness } from '../faults/lateness.js';

/** Expects that the holder of a lease which nobody renews is told at its end, as soon as this machine lets it. */
export async function expectToldInTime({ remainingMs, signal }: Lease): Promise<void> {
  const endsAtMs = performance.now() + remainingMs;
  const lateness = new Lateness();
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
  const lateMs = performance.now() - endsAtMs;
  const limitMs = 250 + lateness.totalMs;
  lateness.end();
  expect(lateMs).toBeLessThan(limitMs);
}
