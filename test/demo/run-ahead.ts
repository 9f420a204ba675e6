/** A run that may be begun before its test, and is awaited there. */
export class RunAhead {
  #run: Promise<void> | undefined;

  constructor(
    readonly name: string,
    private readonly work: () => Promise<void>,
  ) {}

  /** Once; later calls get the same. */
  begin(): Promise<void> {
    this.#run ??= this.work();
    this.#run.catch(() => undefined); // its own test will tell, which may not have begun yet
    return this.#run;
  }

  /** Resolves when nothing of it is under way, whatever it came to. */
  async over(): Promise<void> {
    await this.#run?.catch(() => undefined);
  }
}
