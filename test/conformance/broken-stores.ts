import { setTimeout as pause } from 'node:timers/promises';

import type { Claim, LockStore, RenewalAnswer } from 'nestjs-distributed-lock';

import { bound } from './memory-harness.js';
import { isFree, LISTEN_MS, Owners, withKeys, withTokens } from './spoiling.js';

/** A store with one fault, and the case that has to notice it. */
export interface BrokenStore {
  readonly fault: string;
  readonly caughtBy: string;
  spoil(honest: LockStore): LockStore;
}

export const brokenStores: readonly BrokenStore[] = [
  {
    fault: 'forgets its tokens on release',
    caughtBy: 'never lets a token fall or repeat: not after release, expiry, eviction or a kept key',
    spoil: (honest) => withTokens(honest, { forgets: 'on release' }),
  },
  {
    fault: 'forgets its tokens when its server restarts',
    caughtBy: 'never lets a token fall over a restart, and connections from before it work again',
    spoil: (honest) => withTokens(honest, { forgets: 'on restart' }),
  },
  {
    fault: 'hands out a new token for an acquire that is sent again',
    caughtBy: 'answers an acquire that is sent twice with the same token, and counts its ttl anew',
    spoil(honest) {
      let extra = 0;
      return {
        ...bound(honest),
        tryAcquire: async (claim) => {
          const answer = await honest.tryAcquire(claim, LISTEN_MS);
          return answer.kind === 'busy' ? answer : { ...answer, token: answer.token + ++extra };
        },
      };
    },
  },
  {
    fault: 'hands out tokens that a double cannot hold',
    caughtBy: 'hands out tokens that are safe integers and above its floor',
    spoil: (honest) => ({
      ...bound(honest),
      tryAcquire: async (claim) => {
        const answer = await honest.tryAcquire(claim, LISTEN_MS);
        return answer.kind === 'busy' ? answer : { ...answer, token: answer.token * 1_000 };
      },
    }),
  },
  {
    fault: 'does not count the ttl of an acquire that is sent again',
    caughtBy: 'keeps an acquire that was sent twice for its second ttl',
    spoil(honest) {
      const first = new Map<string, number>();
      return {
        ...bound(honest),
        tryAcquire: (claim) => {
          const ttlMs = first.get(claim.ownerId) ?? claim.ttlMs;
          first.set(claim.ownerId, ttlMs);
          return honest.tryAcquire({ ...claim, ttlMs }, LISTEN_MS);
        },
      };
    },
  },
  {
    fault: 'lets anybody release a key',
    caughtBy: 'does not let a late owner release its successor',
    spoil(honest) {
      const owners = new Owners(honest);
      return {
        ...owners.store,
        release: (request) => honest.release({ ...request, ownerId: owners.of(request) }, LISTEN_MS),
      };
    },
  },
  {
    fault: 'lets anybody renew a key',
    caughtBy: 'does not let a late owner renew the grant of its successor',
    spoil(honest) {
      const owners = new Owners(honest);
      const renew: LockStore['renew'] = (claims) =>
        honest.renew(
          claims.map((claim) => ({ ...claim, ownerId: owners.of(claim) })),
          LISTEN_MS,
        );
      return { ...owners.store, renew };
    },
  },
  {
    fault: 'takes a key again when a renewal finds it gone',
    caughtBy: 'never brings back a grant that was evicted',
    spoil: (honest) => ({
      ...bound(honest),
      renew: (claims) =>
        Promise.all(
          claims.map(async (claim) => {
            const [answer] = await honest.renew([claim], LISTEN_MS);
            if (answer === 'renewed') return answer;
            return (await honest.tryAcquire(claim, LISTEN_MS)).kind === 'granted' ? 'renewed' : 'lost';
          }),
        ),
    }),
  },
  {
    fault: 'says renewed without renewing',
    caughtBy: 'renews a grant for the ttl that the renewal asks for',
    spoil(honest) {
      const owners = new Owners(honest);
      const answer = async (claim: Claim): Promise<RenewalAnswer> =>
        owners.of(claim) === claim.ownerId && !(await isFree(honest, claim)) ? 'renewed' : 'lost';
      return { ...owners.store, renew: (claims) => Promise.all(claims.map(answer)) };
    },
  },
  {
    fault: 'answers renewals in another order',
    caughtBy: 'answers a batch in order, mixing renewed and lost, each with its own ttl',
    spoil: (honest) => ({
      ...bound(honest),
      renew: async (claims) => [...(await honest.renew(claims, LISTEN_MS))].sort(),
    }),
  },
  {
    fault: 'renews a whole batch for the ttl of its first lease',
    caughtBy: 'answers a batch in order, mixing renewed and lost, each with its own ttl',
    spoil: (honest) => ({
      ...bound(honest),
      renew: (claims) => {
        const [first] = claims;
        return honest.renew(
          first ? claims.map((claim) => ({ ...claim, ttlMs: first.ttlMs })) : [],
          LISTEN_MS,
        );
      },
    }),
  },
  {
    fault: 'grants a key to a second owner some time before it expires',
    caughtBy: 'lets nobody in before the ttl has passed, and somebody soon after',
    spoil: (honest) => ({
      ...bound(honest),
      minTtlMs: 30_000, // cases keep leases of twice that: a machine that stands still does not outlast it
      tryAcquire: async (claim) => {
        const answer = await honest.tryAcquire(claim, LISTEN_MS);
        const early = answer.kind === 'busy';
        return early ? { kind: 'granted', token: Date.now() * 1_000 } : answer;
      },
    }),
  },
  {
    fault: 'never lets a grant expire',
    caughtBy: 'lets nobody in before the ttl has passed, and somebody soon after',
    spoil: (honest) => ({
      ...bound(honest),
      tryAcquire: (claim) => honest.tryAcquire({ ...claim, ttlMs: claim.ttlMs + 60_000 }, LISTEN_MS),
    }),
  },
  {
    fault: 'looks first and takes later, so that two may find a key free',
    caughtBy: 'gives a fresh key to exactly one of 40 contenders that start together',
    spoil(honest) {
      const owners = new Owners(honest);
      return {
        ...owners.store,
        tryAcquire: async (claim) => {
          const free = await isFree(honest, claim);
          await new Promise((resolve) => setImmediate(resolve));
          if (free) await honest.release({ ...claim, ownerId: owners.of(claim), keepForMs: 0 }, LISTEN_MS);
          return owners.store.tryAcquire(claim, LISTEN_MS);
        },
      };
    },
  },
  {
    fault: 'frees a key at once although it was to be kept',
    caughtBy: 'keeps a key taken after its release for as long as asked, or frees it where it cannot',
    spoil: (honest) => ({
      ...bound(honest),
      release: (request) => honest.release({ ...request, keepForMs: 0 }, LISTEN_MS),
    }),
  },
  {
    fault: 'leaves a kept key to its last owner',
    caughtBy: 'gives a kept key to nobody: its last owner can neither renew, release nor take it',
    spoil: (honest) => ({
      ...bound(honest),
      release: async (request) => {
        if (request.keepForMs === 0) return honest.release(request, LISTEN_MS);
        const kept = await honest.renew([{ ...request, ttlMs: request.keepForMs }], LISTEN_MS);
        return kept[0] === 'renewed' ? 'released' : 'not-owner';
      },
    }),
  },
  {
    fault: 'cuts keys off',
    caughtBy: 'tells keys of any shape apart: quotes, braces, percent signs, spaces, case, alphabets, length',
    spoil: (honest) => withKeys(honest, (key) => key.slice(0, 255)),
  },
  {
    fault: 'folds case',
    caughtBy: 'tells keys of any shape apart: quotes, braces, percent signs, spaces, case, alphabets, length',
    spoil: (honest) => withKeys(honest, (key) => key.toLowerCase()),
  },
  {
    fault: 'ignores spaces at the end of keys',
    caughtBy: 'tells keys of any shape apart: quotes, braces, percent signs, spaces, case, alphabets, length',
    spoil: (honest) => withKeys(honest, (key) => key.replace(/ +$/, '')),
  },
  {
    fault: 'tells the remaining time in seconds',
    caughtBy: 'tells how long a taken key remains so',
    spoil: (honest) => ({
      ...bound(honest),
      tryAcquire: async (claim) => {
        const answer = await honest.tryAcquire(claim, LISTEN_MS);
        return answer.kind === 'granted'
          ? answer
          : { ...answer, retryAfterMs: (answer.retryAfterMs ?? 0) / 1_000 };
      },
    }),
  },
  {
    fault: 'waits until a taken key is free',
    caughtBy: 'does not wait for the holder of a taken key',
    spoil: (honest) => ({
      ...bound(honest),
      tryAcquire: async (claim) => {
        const answer = await honest.tryAcquire(claim, LISTEN_MS);
        if (answer.kind === 'busy') await pause(2_000);
        return answer;
      },
    }),
  },
];
