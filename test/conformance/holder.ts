import { join } from 'node:path';

import type { Lease } from 'nestjs-distributed-lock';

import { startStopping, type StoppingProcess } from '../servers/index.js';
import type { HolderAnswer, HolderOrder } from './holder-process.js';

/** A process that takes a lock and stops itself. */
export type Holder = StoppingProcess<HolderAnswer>;

export function startHolder(order: HolderOrder): Holder {
  return startStopping<HolderAnswer>(join(__dirname, 'holder-process.ts'), order);
}

/** A holder that was stopped beyond its ttl goes on: its first read tells of the loss, and `next` stays the owner. */
export async function expectLossLearned(holder: Holder, next: Lease): Promise<void> {
  const answer = await holder.answer();
  expect(answer).toMatchObject({ firstRead: 'LEASE_LOST', section: 'LEASE_LOST' });
  expect(next.token).toBeGreaterThan(answer.token);
  next.assertHeld();
  expect(await next.release()).toBe('released');
}
