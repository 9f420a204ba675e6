import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import type { LockService } from 'nestjs-distributed-lock';

import type { TestServer } from '../servers/index.js';
import { expectToldInTime } from './expect-told-in-time.js';

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

/** The server is killed, and starts without what it knew. */
export async function loseData(server: TestServer): Promise<void> {
  await server.kill();
  rmSync(join(server.folder, 'data'), { recursive: true });
  await server.start();
}
