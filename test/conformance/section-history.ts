import { setTimeout as pause } from 'node:timers/promises';

import type { LockService } from 'nestjs-distributed-lock';

import { until } from '../servers/eventually.js';

const TIMES = { ttlMs: 20_000, waitMs: 60_000 };
const INSIDE_MS = 2;

/** One hold, as its owner knew it: by one clock, and without an end while it is inside. */
interface Section {
  readonly token: number;
  readonly enteredAtMs: number;
  leftAtMs: number;
}

/** What owners of one key in one process have seen of each other. They share nothing else. */
export class SectionHistory {
  readonly #sections: Section[] = [];

  /** An owner is inside from now on, until it calls what it is given. */
  enter(token: number): () => void {
    const section: Section = { token, enteredAtMs: performance.now(), leftAtMs: Infinity };
    this.#sections.push(section);
    return () => void (section.leftAtMs = performance.now());
  }

  /** Owners that were inside together, and tokens that did not rise, in words. */
  faults(): string[] {
    const earlierThan = (i: number): Section[] => this.#sections.slice(0, i);
    return this.#sections.flatMap((next, i) => earlierThan(i).flatMap((one) => faultsOf(one, next)));
  }

  /** Enters again and again under the lock, until it is told to stop. */
  async fill(service: LockService, key: string, done: AbortSignal): Promise<void> {
    while (!done.aborted) {
      await service.withLock(key, TIMES, async ({ token }) => {
        const leave = this.enter(token);
        await pause(INSIDE_MS);
        leave();
      });
    }
  }

  /** Resolves when so many more have entered. */
  grownBy(count: number): Promise<void> {
    const enough = this.#sections.length + count;
    return until('work goes on', () => this.#sections.length >= enough, 120_000);
  }
}

/** Sections are kept in the order in which they were entered. */
function faultsOf(one: Section, next: Section): string[] {
  const faults: string[] = [];
  if (one.leftAtMs > next.enteredAtMs) faults.push(`two owners: ${next.token} came to ${one.token}`);
  if (one.token >= next.token) faults.push(`the token did not rise: ${next.token} after ${one.token}`);
  return faults;
}
