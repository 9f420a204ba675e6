import { setTimeout as pause } from 'node:timers/promises';

import type { Claim, LockStore } from 'nestjs-distributed-lock';

import { eventually } from '../servers/eventually.js';

const ROUNDS = 5;
const PATIENCE_MS = 30_000;

/** Expects that a listener is woken at each release, whoever took the key in between, and by none after its end. */
export async function expectWokenAtEveryRelease(
  listening: LockStore,
  other: LockStore,
  claim: Claim,
): Promise<void> {
  let woken = 0;
  const watch = listening.watch?.(claim.key, () => (woken += 1));
  for (let i = 0; i < ROUNDS; i += 1) {
    await other.tryAcquire({ ...claim, ownerId: `${i}` }, PATIENCE_MS);
    await eventually(() => expect(watch?.hears).toBe(true));
    await pause(50);
    const before = woken;
    await other.release({ ...claim, ownerId: `${i}`, keepForMs: 0 }, PATIENCE_MS);
    await eventually(() => expect(woken).toBeGreaterThan(before));
  }
  watch?.stop();
  const before = woken;
  await other.tryAcquire(claim, PATIENCE_MS);
  await other.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
  await pause(100);
  expect(woken).toBe(before);
}
