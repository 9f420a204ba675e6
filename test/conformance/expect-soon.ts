import { setTimeout as pause } from 'node:timers/promises';

import type { Lease, LockService } from 'nestjs-distributed-lock';

const LOOK_EVERY_MS = 50;
/** Acquisitions that whoever waits may need, each as slow as the slowest of those that nothing hindered. */
const ACQUISITIONS = 3;

/**
 * Expects that everybody who waits is granted the lock within `limitMs` from now, and gives it back. How much longer
 * everything takes on this machine at this time is measured beside, by acquisitions of a key that is free: by a service that
 * shares with those who wait nothing that may be at fault.
 */
export async function expectSoon(
  waiting: Promise<Lease> | readonly Promise<Lease>[],
  limitMs: number,
  service: LockService,
): Promise<void> {
  const leases = await takenSoon(Promise.all([waiting].flat()), limitMs, service);
  await Promise.all(leases.map((lease) => lease.release()));
}

/** What `taking` comes to, expected within the time that {@link expectSoon} gives. */
export async function takenSoon<T>(taking: Promise<T>, limitMs: number, service: LockService): Promise<T> {
  const startedAtMs = performance.now();
  let takenAtMs: number | undefined;
  const noted = taking.finally(() => (takenAtMs = performance.now()));
  noted.catch(() => undefined); // told below
  let slowestMs = 0;
  while (takenAtMs === undefined) {
    slowestMs = Math.max(slowestMs, await freeAcquisitionMs(service));
    await pause(LOOK_EVERY_MS);
  }
  const taken = await noted;
  expect(takenAtMs - startedAtMs).toBeLessThan(limitMs + ACQUISITIONS * slowestMs);
  return taken;
}

async function freeAcquisitionMs(service: LockService): Promise<number> {
  const startedAtMs = performance.now();
  await service.withLock('nobody else wants it', { waitMs: 60_000 }, () => undefined);
  return performance.now() - startedAtMs;
}
