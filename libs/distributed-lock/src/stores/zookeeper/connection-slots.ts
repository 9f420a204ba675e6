/** Something that occupies a slot while it is open, and can do without it when nobody uses it. */
export interface Slotted {
  readonly inUse: boolean;
  vacate(): void;
}

/** Bounds how many connections are open. Idle ones make room for those that are needed, the longest idle first. */
export class ConnectionSlots {
  readonly #open = new Set<Slotted>();
  readonly #waiting = new Set<() => void>();

  constructor(private readonly limit: number) {}

  /** Resolves once there is room; what is given then counts until it is {@link left}. */
  async enter(one: Slotted, signal: AbortSignal): Promise<void> {
    while (!this.#open.has(one) && !this.#makeRoom()) {
      await this.#change(signal);
      signal.throwIfAborted();
    }
    this.used(one);
  }

  /** Makes it the last to be asked for its slot. */
  used(one: Slotted): void {
    this.#open.delete(one);
    this.#open.add(one);
  }

  /** To be called when one is not in use any more, or has closed: somebody may be waiting for that. */
  changed(one: Slotted, closed: boolean): void {
    if (closed) this.#open.delete(one);
    for (const next of this.#waiting) return next();
  }

  #change(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        this.#waiting.delete(end);
        signal.removeEventListener('abort', end);
        resolve();
      };
      this.#waiting.add(end);
      signal.addEventListener('abort', end);
    });
  }

  #makeRoom(): boolean {
    if (this.#open.size < this.limit) return true;
    for (const each of this.#open) {
      if (each.inUse) continue;
      this.#open.delete(each);
      each.vacate();
      return true;
    }
    return false;
  }
}
