import type { Claim, LockStore } from 'nestjs-distributed-lock';

import { bound } from './memory-harness.js';

export const LISTEN_MS = 1_000;

/** Who holds which key, as far as this side of the store knows. */
export class Owners {
  readonly #owners = new Map<string, string>();
  readonly store: LockStore;

  constructor(honest: LockStore) {
    this.store = {
      ...bound(honest),
      tryAcquire: async (claim) => {
        const answer = await honest.tryAcquire(claim, LISTEN_MS);
        if (answer.kind === 'granted') this.#owners.set(claim.key, claim.ownerId);
        return answer;
      },
    };
  }

  of({ key, ownerId }: { readonly key: string; readonly ownerId: string }): string {
    return this.#owners.get(key) ?? ownerId;
  }
}

/** Counts owners of each key from one, as a plain counter would. */
export function withTokens(
  honest: LockStore,
  { forgets }: { readonly forgets: 'on release' | 'on restart' },
): LockStore {
  const tokens = new Map<string, { honest: number; counted: number }>();
  return {
    ...bound(honest),
    tryAcquire: async (claim) => {
      const answer = await honest.tryAcquire(claim, LISTEN_MS);
      if (answer.kind === 'busy') return answer;
      const last = tokens.get(claim.key) ?? { honest: 0, counted: 0 };
      const next = last.honest === answer.token ? last : { honest: answer.token, counted: last.counted + 1 };
      tokens.set(claim.key, next);
      return { kind: 'granted', token: next.counted };
    },
    release: (request) => {
      if (forgets === 'on release') tokens.delete(request.key);
      return honest.release(request, LISTEN_MS);
    },
  };
}

export function withKeys(honest: LockStore, change: (key: string) => string): LockStore {
  const changed = <T extends { readonly key: string }>(input: T): T => ({ ...input, key: change(input.key) });
  return {
    ...bound(honest),
    tryAcquire: (claim) => honest.tryAcquire(changed(claim), LISTEN_MS),
    renew: (claims) => honest.renew(claims.map(changed), LISTEN_MS),
    release: (request) => honest.release(changed(request), LISTEN_MS),
  };
}

/** Whether a newcomer could have the key now. Takes nothing for longer than it looks. */
export async function isFree(honest: LockStore, claim: Claim): Promise<boolean> {
  const stranger = { ...claim, ownerId: `${claim.ownerId} looks` };
  const answer = await honest.tryAcquire(stranger, LISTEN_MS);
  if (answer.kind === 'granted') await honest.release({ ...stranger, keepForMs: 0 }, LISTEN_MS);
  return answer.kind === 'granted';
}
