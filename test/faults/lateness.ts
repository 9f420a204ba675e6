const TICK_MS = 10;

/** How late the timers of this process were at worst since it began to look: what a busy machine adds to every limit. */
export class Lateness {
  #worstMs = 0;
  #tickedAtMs = performance.now();
  readonly #ticking = setInterval(() => this.#tick(), TICK_MS);

  get worstMs(): number {
    this.#tick();
    return this.#worstMs;
  }

  end(): void {
    clearInterval(this.#ticking);
  }

  #tick(): void {
    const nowMs = performance.now();
    this.#worstMs = Math.max(this.#worstMs, nowMs - this.#tickedAtMs - TICK_MS);
    this.#tickedAtMs = nowMs;
  }
}
