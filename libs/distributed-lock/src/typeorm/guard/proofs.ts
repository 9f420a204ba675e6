import {
  contextLeases,
  FencedOutError,
  handedOverToken,
  handedOverTokens,
  isLockError,
  matchKey,
  type HandedOverToken,
  type Lease,
  type LockService,
} from '../../core/index.js';
import type { FencedEntity } from '../entities/index.js';
import { currentOperation } from './operations.js';
import type { Proof } from './proof.js';
import { unfencedReason } from './unfenced.js';

/** Finds the token that a write at this point of the call chain may show. */
export class Proofs {
  constructor(private readonly locks: LockService) {}

  /**
   * The proof for a row whose key is known; null when there is none.
   *
   * @throws {LeaseLostError | LeaseUncertainError | LockNotHeldError} the hold on the key is over or in doubt
   * @throws {FencedOutError} a token was given that is not the one held
   */
  forKey(entity: FencedEntity, key: string): Proof | null {
    const expected = expectedFor(key);
    const leases = this.#leasesOf(entity).filter((lease) => lease.key === key);
    const live = leases.find(isNotReleased);
    if (live) return this.#agreeing(this.#proofOf(live, entity), expected);
    if (expected !== undefined) return this.#handedOver(key, expected);
    // Says which lock was outlived. Where tokens are not demanded yet, a hold that is over is no hold.
    const outlived = entity.unfencedWrites === 'refuse' ? leases[0] : undefined;
    return outlived ? this.#proofOf(outlived, entity) : null;
  }

  /**
   * A proof for each lock that protects rows of `entity` and is held here, or whose token was handed over; the database
   * then finds the row's.
   *
   * @throws {LeaseLostError | LeaseUncertainError | LockNotHeldError} none of them can be relied on
   * @throws {FencedOutError} a token was handed over that is not the one held
   */
  forEntity(entity: FencedEntity): readonly Proof[] {
    const live: Proof[] = [];
    let failure: unknown;
    for (const lease of this.#leasesOf(entity)) {
      if (entity.unfencedWrites !== 'refuse' && lease.state.kind === 'released') continue;
      try {
        live.push(this.#proofOf(lease, entity));
      } catch (error) {
        failure ??= error;
      }
    }
    live.push(...this.#handedOverFor(entity));
    // eslint-disable-next-line @typescript-eslint/only-throw-error -- what assertHeld() threw
    if (live.length === 0 && failure !== undefined) throw failure;
    return live;
  }

  /** What a write to `entity` at this point shows, held or over: for messages. */
  shown(entity: FencedEntity): readonly Proof[] {
    const held = this.#leasesOf(entity).map(proofBy);
    return [...held, ...(currentOperation()?.handedOver ?? this.#handedOverFor(entity))];
  }

  /** The key as fences know it: of the present tenant, and of work that belongs to none. */
  qualifiedKeys(key: string): readonly string[] {
    return [...new Set([this.locks.qualify(key), this.locks.qualify(key, 'global')])];
  }

  #leasesOf(entity: FencedEntity): readonly Lease[] {
    if (unfencedReason() !== undefined) return [];
    return contextLeases().filter((lease) => matchKey(entity.template, lease.key) && this.#isMine(lease));
  }

  /** Holds of another tenant or application protect other rows under the same key. */
  #isMine(lease: Lease): boolean {
    return this.locks.qualify(lease.key, 'global') === lease.qualifiedKey || this.#isOfTenant(lease);
  }

  #isOfTenant(lease: Lease): boolean {
    try {
      return this.locks.qualify(lease.key) === lease.qualifiedKey;
    } catch (error) {
      if (isLockError(error)) return false; // no tenant here, so it cannot be this one's
      throw error;
    }
  }

  #proofOf(lease: Lease, entity: FencedEntity): Proof {
    try {
      lease.assertHeld();
    } catch (error) {
      const { key, template, store, token } = lease;
      this.locks.events.emit({
        type: 'stale-write-refused',
        key,
        template,
        store,
        token,
        entity: entity.name,
      });
      throw error;
    }
    return proofBy(lease);
  }

  #agreeing(proof: Proof, expected: number | undefined): Proof {
    if (expected === undefined || expected === proof.token) return proof;
    throw new FencedOutError(
      `Token ${expected} is expected for "${proof.key}", but the hold on it has token ${proof.token}. Nothing was written; ` +
        'leave expectedLockToken out where the lock is held.',
      { key: proof.key, store: proof.lease?.store },
    );
  }

  /** A hold speaks for its key itself, also when it is lost: its token is then as stale as it is. */
  #handedOverFor(entity: FencedEntity): readonly Proof[] {
    const held = this.#leasesOf(entity).filter(isNotReleased);
    return tokensOf(entity).flatMap(({ key, token }) => {
      const lease = held.find((candidate) => candidate.key === key);
      if (!lease) return this.#handedOver(key, token);
      this.#agreeing(proofBy(lease), token);
      return [];
    });
  }

  #handedOver(key: string, token: number): Proof {
    const proof = { key, qualifiedKey: this.locks.qualify(key), token, ownerId: null, lease: null };
    const shown = currentOperation()?.handedOver;
    if (shown && !shown.some((one) => one.key === key)) shown.push(proof);
    return proof;
  }
}

function proofBy(lease: Lease): Proof {
  const { key, qualifiedKey, token, ownerId } = lease;
  return { key, qualifiedKey, token, ownerId, lease };
}

function isNotReleased(lease: Lease): boolean {
  return lease.state.kind !== 'released';
}

/** The tokens that were handed over to the work around, for keys that protect rows of `entity`. */
function tokensOf({ template }: FencedEntity): readonly HandedOverToken[] {
  if (unfencedReason() !== undefined) return [];
  return handedOverTokens().filter(({ key }) => matchKey(template, key) !== null);
}

/** @throws {FencedOutError} the call expects another token than the work around it */
function expectedFor(key: string): number | undefined {
  const given = currentOperation()?.expectedLockToken;
  const around = unfencedReason() === undefined ? handedOverToken(key)?.token : undefined;
  if (given === undefined || around === undefined || given === around) return given ?? around;
  throw new FencedOutError(
    `expectedLockToken is ${given}, but the work around this call was given token ${around} for "${key}". Nothing was ` +
      'written; one of the two is stale, so stop here and read the data again.',
    { key },
  );
}
