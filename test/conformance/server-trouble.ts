import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import type { Lease, LockService, LockStore } from 'nestjs-distributed-lock';

import { eventually } from '../servers/eventually.js';
import type { TestServer } from '../servers/index.js';
import { takenSoon } from './expect-soon.js';
import { expectToldInTime } from './expect-told-in-time.js';

/** Before anybody would ask again who was not woken. */
const SOON_MS = 500;

/** Freezes the server for two ttls. Expects that the holder is told in time, and that the next owner is served then. */
export async function expectFreezeSurvived(
  server: TestServer,
  [one, other]: readonly [LockService, LockService],
  { ttlMs, waitMs }: { readonly ttlMs: number; readonly waitMs: number },
): Promise<void> {
  const held = await one.acquire('k', { ttlMs, waitMs });
  server.pause();
  await expectToldInTime(held);
  expect(() => held.assertHeld()).toThrow(expect.objectContaining({ code: 'LEASE_LOST', reason: 'expired' }));
  await pause(ttlMs);
  server.resume();
  const next = await other.acquire('k', { waitMs });
  expect(next.token).toBeGreaterThan(held.token);
  await next.release();
  await (await one.acquire('k', { waitMs })).release();
}

/**
 * Restarts the server while the service of `listening` waits for the key, which somebody holds until `release`. Expects that
 * the service hears of the release, and is granted the key at once; gives that lease back.
 */
export async function expectWokenAfterRestart(
  server: TestServer,
  key: string,
  {
    listening,
    waiting,
    beside,
    release,
  }: {
    readonly listening: LockStore;
    readonly waiting: LockService;
    readonly beside: LockService;
    readonly release: () => Promise<unknown>;
  },
): Promise<Lease> {
  const watch = listening.watch?.(key, () => undefined); // which its service shares
  const hears = (yes: boolean): Promise<void> => eventually(() => expect(watch?.hears).toBe(yes));
  const next = waiting.acquire(key, { waitMs: 80_000 });
  next.catch(() => undefined); // told below
  await hears(true);
  await server.kill();
  await hears(false);
  await server.start();
  await hears(true);
  await release();
  const lease = await takenSoon(next, SOON_MS, beside);
  watch?.stop();
  await lease.release();
  return lease;
}

/** The server is killed, and starts without what it knew. */
export async function loseData(server: TestServer): Promise<void> {
  await server.kill();
  rmSync(join(server.folder, 'data'), { recursive: true });
  await server.start();
}
