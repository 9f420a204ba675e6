/** Places for commands that are under way. Who finds none waits in a row, and leaves it when its signal aborts. */
export class Places {
  readonly #row = new Set<(refusal?: Error) => void>();
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  /**
   * `work` in a place of its own.
   *
   * @throws the reason of `signal`, or of {@link sendAway}; `work` has not begun then
   */
  async take<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#turn(signal);
    try {
      return await work();
    } finally {
      this.#next();
    }
  }

  /** Whoever waits for a place gets none. */
  sendAway(refusal: Error): void {
    for (const end of this.#row) end(refusal);
  }

  #turn(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (): void => end(signal.reason as Error);
      const end = (refusal?: Error): void => {
        this.#row.delete(end);
        signal.removeEventListener('abort', leave);
        if (refusal) reject(refusal);
        else resolve();
      };
      this.#row.add(end);
      signal.addEventListener('abort', leave);
    });
  }

  #next(): void {
    const [first] = this.#row;
    if (first) first();
    else this.#free += 1;
  }
}
