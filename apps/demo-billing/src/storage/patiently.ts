import { setTimeout as sleep } from 'node:timers/promises';

/** A server that was killed during the run may still be on its way back. */
const PATIENCE_MS = 15_000;
const RETRY_MS = 250;

export async function patiently<T>(attempt: () => Promise<T>): Promise<T> {
  const givesUpAtMs = performance.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (performance.now() > givesUpAtMs) throw error;
    }
    await sleep(RETRY_MS);
  }
}
