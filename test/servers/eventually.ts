import { setTimeout as pause } from 'node:timers/promises';

const STEP_MS = 50;

/** What the expectation comes to, once it no longer throws. @throws what it threw last, after `limitMs` */
export async function eventually<T>(expectation: () => T | Promise<T>, limitMs = 10_000): Promise<T> {
  const giveUpAtMs = performance.now() + limitMs;
  for (;;) {
    try {
      return await expectation();
    } catch (error) {
      if (performance.now() > giveUpAtMs) throw error;
      await pause(STEP_MS);
    }
  }
}
