import { setTimeout as pause } from 'node:timers/promises';

import { memoryStore, type LockStore } from 'nestjs-distributed-lock';
import type { LockStoreHarness } from 'nestjs-distributed-lock/testing';

/**
 * Connections to one memory store, as of processes that could share one. `spoil` puts a fault between them and the store.
 */
export function memoryHarness(spoil: (honest: LockStore) => LockStore = (store) => store): LockStoreHarness {
  let place = newPlace(spoil);
  return {
    connect: () => Promise.resolve(connection(place.spoilt)),
    evict: async (key) => {
      const ownerId = place.owners.get(key) ?? '';
      await place.honest.release({ key, ownerId, keepForMs: 0 }, 0);
    },
    restart: async () => {
      await pause(5); // no process starts within the same millisecond
      place = newPlace(spoil);
    },
    tokenFloor: () => (Date.now() - 60_000) * 1_000,
    tellsRemainingTime: true,
  };
}

interface Place {
  readonly honest: LockStore;
  readonly spoilt: LockStore;
  /** Who was granted a key last: what a thief needs to know. */
  readonly owners: ReadonlyMap<string, string>;
}

function newPlace(spoil: (honest: LockStore) => LockStore): Place {
  const honest = memoryStore();
  const owners = new Map<string, string>();
  const recorded: LockStore = {
    ...bound(honest),
    tryAcquire: async (claim, timeoutMs) => {
      const answer = await honest.tryAcquire(claim, timeoutMs);
      if (answer.kind === 'granted') owners.set(claim.key, claim.ownerId);
      return answer;
    },
  };
  return { honest, owners, spoilt: spoil(recorded) };
}

/** One process goes, the others keep their leases. */
function connection(store: LockStore): LockStore {
  return { ...bound(store), close: () => Promise.resolve() };
}

/** A plain object with the store's methods, to be spread and changed. */
export function bound(store: LockStore): LockStore {
  return {
    kind: store.kind,
    minTtlMs: store.minTtlMs,
    keepsReleasedKeys: store.keepsReleasedKeys,
    tryAcquire: (claim, timeoutMs) => store.tryAcquire(claim, timeoutMs),
    renew: (claims, timeoutMs) => store.renew(claims, timeoutMs),
    release: (request, timeoutMs) => store.release(request, timeoutMs),
    close: () => store.close(),
  };
}
