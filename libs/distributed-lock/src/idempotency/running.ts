import { pause, type Clock } from '../core/index.js';

/** The calls that are under way, so that a shutdown can wait for them. */
export class Running {
  #count = 0;
  #closing = false;
  readonly #idle = new AbortController();

  constructor(private readonly clock: Clock) {}

  get closing(): boolean {
    return this.#closing;
  }

  /** Each is to be followed by {@link ended}. */
  begun(): void {
    this.#count += 1;
  }

  ended(): void {
    this.#count -= 1;
    this.#tellIfIdle();
  }

  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    this.#tellIfIdle();
    await pause(this.clock, { timeoutMs: graceMs, signals: [this.#idle.signal] });
  }

  #tellIfIdle(): void {
    if (this.#closing && this.#count === 0) this.#idle.abort();
  }
}
