import { hasCode, labelledKey, type KeyInput, type Lease, type LockService } from '../core/index.js';
import type { BusyLock } from './locked-options.js';
import type { LockedSite } from './locked-site.js';
import { locksFor } from './locks-of-object.js';
import { requireSettled } from './result-kind.js';

/** What a call came to: the body's result, or what `onBusy` put in its place. */
export type CallOutcome<T> =
  { readonly ran: true; readonly value: T } | { readonly ran: false; readonly instead: unknown };

/** One call of a locked method. */
export class LockedCall {
  constructor(
    readonly site: LockedSite,
    private readonly self: unknown,
    private readonly args: readonly unknown[],
  ) {}

  /** Runs `body` under the lock that the arguments name, in its context. */
  async underLock<T>(body: (lease: Lease) => Promise<T> | T, signal?: AbortSignal): Promise<CallOutcome<T>> {
    const locks = locksFor(this.site, this.self);
    const key = this.site.keyOf(this.args);
    let entered = false;
    const enter = (lease: Lease): Promise<T> | T => {
      entered = true;
      return body(lease);
    };
    try {
      return { ran: true, value: await locks.withLock(key, { ...this.site.options, signal }, enter) };
    } catch (error) {
      // A busy key inside the body is the body's affair.
      if (entered || !hasCode(error, 'LOCK_TIMEOUT')) throw error;
      return { ran: false, instead: this.#answerBusy(locks, key, error as BusyLock) };
    }
  }

  /** The method itself. */
  invoke(lease: Lease): unknown {
    const args = [...this.args];
    for (const index of this.site.leaseParameters) args[index] = lease;
    return this.site.method.apply(this.self, args as never[]);
  }

  #answerBusy(locks: LockService, key: KeyInput, busy: BusyLock): unknown {
    const { onBusy } = this.site;
    if (onBusy === 'throw') throw busy;
    if (typeof onBusy === 'function') return onBusy(busy, ...this.args);
    const { retryAfterMs, store } = busy;
    locks.events.emit({ type: 'skipped', ...labelledKey(key), store, retryAfterMs });
    return undefined;
  }
}

export async function lockedPromise(call: LockedCall): Promise<unknown> {
  const outcome = await call.underLock(async (lease) =>
    requireSettled(await call.invoke(lease), call.site.label),
  );
  return outcome.ran ? outcome.value : outcome.instead;
}
