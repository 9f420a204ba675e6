/** Notices that nothing goes on any more. */
export class StallWatch {
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(
    private readonly limitMs: number,
    private readonly onStall: () => void,
  ) {
    this.progress();
  }

  /** Something was achieved: the time starts again. */
  progress(): void {
    clearTimeout(this.#timer);
    if (this.#stopped) return; // the last words of a worker
    this.#timer = setTimeout(this.onStall, this.limitMs);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }
}
