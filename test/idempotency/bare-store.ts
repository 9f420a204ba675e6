import type { IdempotencyStore } from 'nestjs-distributed-lock';

/** The store as a plain object, in which a test may put something else in the place of a method. */
export function bareStore(store: IdempotencyStore): IdempotencyStore {
  return {
    kind: store.kind,
    minLeaseMs: store.minLeaseMs,
    claim: (claim, timeoutMs) => store.claim(claim, timeoutMs),
    renew: (renewal, timeoutMs) => store.renew(renewal, timeoutMs),
    settle: (id, ownerId, ending, timeoutMs) => store.settle(id, ownerId, ending, timeoutMs),
    resolve: (id, result, keepMs, timeoutMs) => store.resolve(id, result, keepMs, timeoutMs),
    forget: (id, timeoutMs) => store.forget(id, timeoutMs),
    read: (id, timeoutMs) => store.read(id, timeoutMs),
    purge: (limit, timeoutMs) => store.purge(limit, timeoutMs),
    close: () => store.close(),
  };
}
