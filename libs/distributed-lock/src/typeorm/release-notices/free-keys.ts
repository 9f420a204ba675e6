import type { KeyWatch } from '../../core/index.js';

/** Who waits for which lock in this process, and whether anything would be heard. */
export class FreeKeys {
  readonly #waiting = new Map<string, Set<() => void>>();
  #hears: () => boolean = () => false;

  get awaited(): boolean {
    return this.#waiting.size > 0;
  }

  /** A connection listens from now on. What became free before was not told, so everybody looks. */
  hear(hears: () => boolean): void {
    this.#hears = hears;
    for (const name of [...this.#waiting.keys()]) this.ring(name);
  }

  /** Those that wait now: who is woken may wait anew at once. */
  ring(name: string): void {
    for (const wake of [...(this.#waiting.get(name) ?? [])]) wake();
  }

  watch(name: string, wake: () => void): KeyWatch {
    const waiting = this.#waiting.get(name) ?? new Set();
    const ear = (): void => wake();
    this.#waiting.set(name, waiting.add(ear));
    if (this.#hears()) queueMicrotask(() => waiting.has(ear) && ear());
    const hears = (): boolean => this.#hears();
    return {
      get hears() {
        return hears();
      },
      stop: () => {
        waiting.delete(ear);
        if (waiting.size === 0 && this.#waiting.get(name) === waiting) this.#waiting.delete(name);
      },
    };
  }
}
