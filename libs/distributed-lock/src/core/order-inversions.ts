import { contextLeases } from './context.js';
import type { LockEventHub, LockSubject } from './lock-events.js';

/** One report per pair of templates is enough to find the code, and this many pairs are more than anybody reads. */
const MOST_PAIRS = 100;

/**
 * Notices nested locks that are taken against the order of their keys: two callers that do it the other way round wait
 * for each other until `waitMs` is over.
 */
export class OrderInversions {
  readonly #reported = new Set<string>();

  constructor(private readonly events: LockEventHub) {}

  notice({ key, template, store, qualifiedKey }: LockSubject & { readonly qualifiedKey: string }): void {
    for (const held of contextLeases()) {
      const inOrder = held.qualifiedKey <= qualifiedKey || held.state.kind === 'released';
      const pair = `${held.template}\n${template}`;
      if (inOrder || this.#reported.has(pair) || this.#reported.size >= MOST_PAIRS) continue;
      this.#reported.add(pair);
      this.events.emit({ type: 'order-inversion', key, template, store, heldTemplate: held.template });
    }
  }
}
