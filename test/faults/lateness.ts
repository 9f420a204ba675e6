const TICK_MS = 10;
/** What timers are late by on a machine that does nothing else. */
const USUAL_MS = 5;

/** How late the timers of this process have been since it began to look: what a busy machine adds to every limit. */
export class Lateness {
  #totalMs = 0;
  #tickedAtMs = performance.now();
  readonly #ticking = setInterval(() => this.#tick(), TICK_MS);

  /** For how long it was held up altogether: a chain of steps, each late at another time, is no later than that. */
  get totalMs(): number {
    this.#tick();
    return this.#totalMs;
  }

  end(): void {
    clearInterval(this.#ticking);
  }

  #tick(): void {
    const nowMs = performance.now();
    const lateMs = nowMs - this.#tickedAtMs - TICK_MS;
    if (lateMs > USUAL_MS) this.#totalMs += lateMs;
    this.#tickedAtMs = nowMs;
  }
}
