/** Notices that nothing goes on any more. */
export class StallWatch {
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly limitMs: number,
    private readonly onStall: () => void,
  ) {
    this.progress();
  }

  /** Something was achieved: the time starts again. */
  progress(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.onStall, this.limitMs);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
