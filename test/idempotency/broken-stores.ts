import { memoryIdempotencyStore, type IdempotencyStore, type RecordClaim } from 'nestjs-distributed-lock';
import type { IdempotencyStoreHarness } from 'nestjs-distributed-lock/testing';

import { bareStore } from './bare-store.js';

/** A store with one fault, and the case of the contract that has to notice it. */
export interface BrokenStore {
  readonly fault: string;
  readonly caughtBy: string;
  spoil(honest: IdempotencyStore): Partial<IdempotencyStore>;
}

/** Connections to one store in memory, with a fault between them and the store. */
export function spoiltHarness(spoil: BrokenStore['spoil'] = () => ({})): IdempotencyStoreHarness {
  const honest = bareStore(memoryIdempotencyStore());
  const spoilt = { ...honest, ...spoil(honest) };
  return { connect: () => Promise.resolve(spoilt), purgesItself: false };
}

const LISTEN_MS = 1_000;

/** A store whose every claim is changed on its way. */
function withClaims(change: (claim: RecordClaim) => Partial<RecordClaim>): BrokenStore['spoil'] {
  return (honest) => ({ claim: (claim) => honest.claim({ ...claim, ...change(claim) }, LISTEN_MS) });
}

/** Who owns which record, as far as this side of the store knows. */
function owners(
  honest: IdempotencyStore,
): Pick<IdempotencyStore, 'claim'> & { of(id: string, other: string): string } {
  const known = new Map<string, string>();
  return {
    of: (id, other) => known.get(id) ?? other,
    claim: async (claim) => {
      const answer = await honest.claim(claim, LISTEN_MS);
      if (answer.kind === 'claimed') known.set(claim.id, claim.ownerId);
      return answer;
    },
  };
}

export const brokenStores: readonly BrokenStore[] = [
  {
    fault: 'lets anybody settle a record, as stores do that look at the key alone',
    caughtBy: 'lets nobody but the owner renew or settle',
    spoil(honest) {
      const { claim, of } = owners(honest);
      return {
        claim,
        settle: (id, ownerId, ending) => honest.settle(id, of(id, ownerId), ending, LISTEN_MS),
      };
    },
  },
  {
    fault: 'lets a former owner complete the record of its successor',
    caughtBy: 'lets a former owner change nothing once another has taken over',
    spoil(honest) {
      const { claim, of } = owners(honest);
      const former = new Set<string>();
      return {
        claim: async (wanted, timeoutMs) => {
          const owner = of(wanted.id, '');
          const answer = await claim(wanted, timeoutMs);
          if (answer.kind === 'claimed') former.add(owner);
          return answer;
        },
        settle: (id, ownerId, ending) =>
          honest.settle(id, former.has(ownerId) ? of(id, ownerId) : ownerId, ending, LISTEN_MS),
      };
    },
  },
  {
    fault: 'lets anybody renew a record',
    caughtBy: 'lets nobody but the owner renew or settle',
    spoil(honest) {
      const { claim, of } = owners(honest);
      const renew: IdempotencyStore['renew'] = (renewal) =>
        honest.renew({ ...renewal, ownerId: of(renewal.id, renewal.ownerId) }, LISTEN_MS);
      return { claim, renew };
    },
  },
  {
    fault: 'looks first and claims later, so that two may find a record free',
    caughtBy:
      'gives a fresh record to exactly one of 50 that ask together, and tells the others how long to wait',
    spoil: (honest) => ({
      claim: async (claim) => {
        const found = await honest.read(claim.id, LISTEN_MS);
        await new Promise((resolve) => setImmediate(resolve));
        if (found) return honest.claim(claim, LISTEN_MS);
        await honest.claim(claim, LISTEN_MS);
        return { kind: 'claimed', fence: Date.now() * 1_000, attempt: 1, takenOver: false };
      },
    }),
  },
  {
    fault: 'gives a lapsed record to everybody who asks',
    caughtBy: 'gives a lapsed record to exactly one of 50 that ask together, with a higher fence',
    spoil: (honest) => ({
      claim: async (claim) => {
        const found = await honest.read(claim.id, LISTEN_MS);
        await new Promise((resolve) => setImmediate(resolve));
        const answer = await honest.claim(claim, LISTEN_MS);
        if (found?.state !== 'lapsed' || answer.kind !== 'running') return answer;
        return { kind: 'claimed', fence: found.fence + 1, attempt: found.attempt + 1, takenOver: true };
      },
    }),
  },
  {
    fault: 'counts fences from one for each record',
    caughtBy: 'forgets any record but a running one, and never lets the fence of its successor fall',
    spoil: (honest) => ({
      claim: async (claim) => {
        const answer = await honest.claim(claim, LISTEN_MS);
        return answer.kind === 'claimed' ? { ...answer, fence: answer.attempt } : answer;
      },
    }),
  },
  {
    fault: 'keeps the fence when a record is taken over',
    caughtBy: 'lets nobody in before the lease has passed, and somebody soon after',
    spoil(honest) {
      const fences = new Map<string, number>();
      return {
        claim: async (claim) => {
          const answer = await honest.claim(claim, LISTEN_MS);
          if (answer.kind !== 'claimed') return answer;
          const fence = fences.get(claim.id) ?? answer.fence;
          fences.set(claim.id, fence);
          return { ...answer, fence };
        },
      };
    },
  },
  {
    fault: 'never lets a lease end before the record does, so that a crash blocks its key for a day (C010)',
    caughtBy: 'lets nobody in before the lease has passed, and somebody soon after',
    spoil: withClaims(({ leaseMs, keepMs }) => ({ leaseMs: leaseMs + keepMs })),
  },
  {
    fault: 'forgets a record together with its lease, and with it that somebody had begun',
    caughtBy: 'keeps a lapsed record for as long as asked, and no longer',
    spoil: withClaims(() => ({ keepMs: 0 })),
  },
  {
    fault: 'runs a crashed call again whatever it was told (C026)',
    caughtBy: 'abandons a lapsed record that may not be taken over, for everybody and for good',
    spoil: withClaims(() => ({ takeOver: true })),
  },
  {
    fault: 'runs a crashed call again for ever',
    caughtBy: 'abandons a lapsed record that has begun as often as it may',
    spoil: withClaims(() => ({ maxAttempts: 1_000 })),
  },
  {
    fault: 'does not compare fingerprints',
    caughtBy:
      'refuses another fingerprint in every state but absent, and does not take the record over for it',
    spoil: withClaims(() => ({ fingerprint: '' })),
  },
  {
    fault: 'says that another request is running where it should be refused',
    caughtBy:
      'refuses another fingerprint in every state but absent, and does not take the record over for it',
    spoil: (honest) => ({
      claim: async (claim) => {
        const answer = await honest.claim(claim, LISTEN_MS);
        const found = await honest.read(claim.id, LISTEN_MS);
        return answer.kind === 'mismatch' && found?.state === 'running'
          ? { kind: 'running', retryAfterMs: 1 }
          : answer;
      },
    }),
  },
  {
    fault: 'tells the owner of a claim that is sent again to wait for itself',
    caughtBy: 'answers a claim that is sent twice alike, also when it took over, and counts its lease anew',
    spoil(honest) {
      const seen = new Set<string>();
      return {
        claim: async (claim) => {
          if (seen.has(claim.ownerId)) return { kind: 'running', retryAfterMs: claim.leaseMs };
          seen.add(claim.ownerId);
          return honest.claim(claim, LISTEN_MS);
        },
      };
    },
  },
  {
    fault: 'counts attempts that never began',
    caughtBy:
      'begins anew after a record was freed, with any fingerprint, and counts only the attempts that count',
    spoil: (honest) => ({
      settle: (id, ownerId, ending) =>
        honest.settle(
          id,
          ownerId,
          'countsAttempt' in ending ? { ...ending, countsAttempt: true } : ending,
          LISTEN_MS,
        ),
    }),
  },
  {
    fault: 'forgets failed attempts',
    caughtBy:
      'begins anew after a record was freed, with any fingerprint, and counts only the attempts that count',
    spoil: (honest) => ({
      settle: async (id, ownerId, ending) => {
        const answer = await honest.settle(id, ownerId, ending, LISTEN_MS);
        if (answer === 'settled' && ending.kind === 'freed') await honest.forget(id, LISTEN_MS);
        return answer;
      },
    }),
  },
  {
    fault: 'refuses a completion whose first answer was lost',
    caughtBy:
      'settles as done twice, since the first answer may have been lost, and then lets its owner do nothing else',
    spoil(honest) {
      const settled = new Set<string>();
      return {
        settle: async (id, ownerId, ending) => {
          if (settled.has(ownerId)) return 'refused';
          settled.add(ownerId);
          return honest.settle(id, ownerId, ending, LISTEN_MS);
        },
      };
    },
  },
  {
    fault: 'refuses an owner whose lease has ended though nobody took over',
    caughtBy: 'lets an owner whose lease has ended renew and complete as long as nobody has taken over',
    spoil: (honest) => ({
      settle: async (id, ownerId, ending) => {
        const found = await honest.read(id, LISTEN_MS);
        return found?.state === 'lapsed' ? 'refused' : honest.settle(id, ownerId, ending, LISTEN_MS);
      },
    }),
  },
  {
    fault: 'makes a record anew when a renewal finds it gone',
    caughtBy: 'never makes a record by renewing or settling what is not there',
    spoil: (honest) => ({
      renew: async (renewal) => {
        const answer = await honest.renew(renewal, LISTEN_MS);
        if (answer === 'renewed') return answer;
        const claim = { ...renewal, fingerprint: '', takeOver: false, maxAttempts: 1, label: '' };
        return (await honest.claim(claim, LISTEN_MS)).kind === 'claimed' ? 'renewed' : 'lost';
      },
    }),
  },
  {
    fault: 'cuts results off',
    caughtBy: 'gives the stored result to everybody, exactly as it was, up to a megabyte',
    spoil: (honest) => ({
      settle: (id, ownerId, ending) => {
        if (ending.kind !== 'done') return honest.settle(id, ownerId, ending, LISTEN_MS);
        const result = { ...ending.result, body: ending.result.body.slice(0, 65_535) };
        return honest.settle(id, ownerId, { ...ending, result }, LISTEN_MS);
      },
    }),
  },
  {
    fault: 'folds the case of ids, as a default collation does',
    caughtBy: 'tells ids apart that differ in case only',
    spoil: withClaims(({ id }) => ({ id: id.toLowerCase() })),
  },
  {
    fault: 'forgets what is at work',
    caughtBy: 'forgets any record but a running one, and never lets the fence of its successor fall',
    spoil: (honest) => ({
      forget: async (id) => {
        const answer = await honest.forget(id, LISTEN_MS);
        return answer === 'running' ? 'forgotten' : answer;
      },
    }),
  },
  {
    fault: 'lets an operator write over an answer',
    caughtBy: 'resolves lapsed and abandoned records, for as long as asked, and no others',
    spoil: (honest) => ({
      resolve: async (id, result, keepMs) => {
        await honest.resolve(id, result, keepMs, LISTEN_MS);
        return 'resolved';
      },
    }),
  },
  {
    fault: 'gives answers that have expired',
    caughtBy: 'takes an expired record for absent in every call, whether or not it is still stored',
    spoil: (honest) => ({
      settle: (id, ownerId, ending) =>
        honest.settle(id, ownerId, 'keepMs' in ending ? { ...ending, keepMs: 60_000 } : ending, LISTEN_MS),
    }),
  },
  {
    fault: 'purges answers that are still good',
    caughtBy: 'purges what has expired, in batches, and nothing else',
    spoil(honest) {
      const ids = new Set<string>();
      return {
        claim: (claim) => {
          ids.add(claim.id);
          return honest.claim(claim, LISTEN_MS);
        },
        purge: async (limit) => {
          for (const id of ids) await honest.forget(id, LISTEN_MS);
          return honest.purge(limit, LISTEN_MS);
        },
      };
    },
  },
];
