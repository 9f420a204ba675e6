import { setTimeout as pause } from 'node:timers/promises';

const EXPECT_EVERY_MS = 50;
const ASK_EVERY_MS = 10;

/** What the expectation comes to, once it no longer throws. @throws what it threw last, after `limitMs` */
export async function eventually<T>(expectation: () => T | Promise<T>, limitMs = 30_000): Promise<T> {
  const giveUpAtMs = performance.now() + limitMs;
  for (;;) {
    try {
      return await expectation();
    } catch (error) {
      if (performance.now() > giveUpAtMs) throw error;
      await pause(EXPECT_EVERY_MS);
    }
  }
}

/**
 * Asks until the answer is yes; a server that does not answer has not said so.
 *
 * @throws that it was in vain, after `limitMs`, with what it waited for and why the last answer failed, if it did
 */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  limitMs = 60_000,
): Promise<void> {
  const giveUpAtMs = performance.now() + limitMs;
  for (;;) {
    let cause: unknown;
    try {
      if (await holds()) return;
    } catch (error) {
      cause = error;
    }
    if (performance.now() > giveUpAtMs) throw new Error(`not within ${limitMs} ms: ${what}`, { cause });
    await pause(ASK_EVERY_MS);
  }
}
