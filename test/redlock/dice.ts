/** Random choices that a seed repeats. */
export class Dice {
  constructor(private seed: number) {}

  /** A whole number from 0 up to `limit`, without it; 0 when there is none. */
  below(limit: number): number {
    return Math.floor(this.#next() * limit);
  }

  lucky(probability: number): boolean {
    return this.#next() < probability;
  }

  oneOf<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T;
  }

  #next(): number {
    this.seed = (this.seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.seed ^ (this.seed >>> 15), 1 | this.seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
}
