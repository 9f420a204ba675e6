import { withDeadline } from '../../core/index.js';
import { nameOfOwner, type LockClaimer } from './hold-sessions.js';

/** Acquires that are under way here. One whose owner gives the lock back meanwhile stops before it takes anything. */
export class Attempts {
  readonly #stops = new Map<string, Set<AbortController>>();

  async run<T>(
    owner: LockClaimer,
    timeoutMs: number,
    acquire: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const name = nameOfOwner(owner);
    const stop = new AbortController();
    const stops = this.#stops.get(name) ?? new Set();
    this.#stops.set(name, stops.add(stop));
    try {
      return await withDeadline(timeoutMs, (late) => acquire(AbortSignal.any([late, stop.signal])));
    } finally {
      stops.delete(stop);
      if (stops.size === 0 && this.#stops.get(name) === stops) this.#stops.delete(name);
    }
  }

  stop(owner: LockClaimer): void {
    const stops = this.#stops.get(nameOfOwner(owner)) ?? [];
    for (const stop of stops) stop.abort(new Error('the lock was given back while it was asked for'));
  }
}
