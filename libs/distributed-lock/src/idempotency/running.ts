import { pause, type Clock } from '../core/index.js';
import type { RecordIdentity } from './record-identity.js';

/** What is under way, so that a shutdown can wait for it. */
export class Running {
  readonly #calls = new Set<RecordIdentity>();
  #purges = 0;
  readonly #closing = new AbortController();
  readonly #idle = new AbortController();

  constructor(private readonly clock: Clock) {}

  get keys(): readonly string[] {
    return [...this.#calls].map(({ key }) => key);
  }

  /** Aborts when nothing new may begin. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Each call, known by its own object, is to be followed by {@link ended}. */
  begun(call: RecordIdentity): void {
    this.#calls.add(call);
  }

  ended(call: RecordIdentity): void {
    this.#calls.delete(call);
    this.#tellIfIdle();
  }

  async duringPurge<T>(purge: () => Promise<T>): Promise<T> {
    this.#purges += 1;
    try {
      return await purge();
    } finally {
      this.#purges -= 1;
      this.#tellIfIdle();
    }
  }

  async close(graceMs: number): Promise<void> {
    this.#closing.abort();
    this.#tellIfIdle();
    if (graceMs > 0) await pause(this.clock, { timeoutMs: graceMs, signals: [this.#idle.signal] });
  }

  #tellIfIdle(): void {
    if (this.closing.aborted && this.#calls.size + this.#purges === 0) this.#idle.abort();
  }
}
