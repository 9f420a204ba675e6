/** The locks that one connection has, and the leases for which it has them. They end with it. */
export class HeldLocks {
  readonly #users = new Map<string, Map<string, NodeJS.Timeout>>();

  /** @param onExpired hears of a lease that nobody has renewed: its lock must not outlive it */
  constructor(private readonly onExpired: (name: string, grant: string) => void) {}

  has(name: string): boolean {
    return this.#users.has(name);
  }

  /** The lock `name` is had for `grant`, for so long unless it is kept again. */
  keep(name: string, grant: string, ttlMs: number): void {
    const grants = this.#users.get(name) ?? new Map<string, NodeJS.Timeout>();
    clearTimeout(grants.get(grant));
    const timer = setTimeout(() => this.onExpired(name, grant), Math.min(ttlMs, LONGEST_TIMER_MS));
    this.#users.set(name, grants.set(grant, timer.unref()));
  }

  /** @returns true when that was the last lease which needed the lock: it has to be given back */
  drop(name: string, grant: string): boolean {
    const grants = this.#users.get(name);
    if (!grants?.has(grant)) return false;
    clearTimeout(grants.get(grant));
    grants.delete(grant);
    return grants.size === 0 && this.#users.delete(name);
  }

  clear(): void {
    for (const grants of this.#users.values()) for (const timer of grants.values()) clearTimeout(timer);
    this.#users.clear();
  }
}

/** Node fires a longer timer at once. A lock that is given back early is taken again by the next renewal. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
