import {
  contextLeases,
  FencedOutError,
  isLockError,
  matchKey,
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
    const expected = currentOperation()?.expectedLockToken;
    const leases = this.#leasesOf(entity).filter((lease) => lease.key === key);
    const live = leases.find((lease) => lease.state.kind !== 'released');
    if (live) return this.#agreeing(this.#proofOf(live, entity), expected);
    if (expected !== undefined) return this.#handedOver(key, expected);
    // Says which lock was outlived. Where tokens are not demanded yet, a hold that is over is no hold.
    const outlived = entity.unfencedWrites === 'refuse' ? leases[0] : undefined;
    return outlived ? this.#proofOf(outlived, entity) : null;
  }

  /**
   * A proof for each lock held here that protects rows of `entity`; the database then finds the row's.
   *
   * @throws {LeaseLostError | LeaseUncertainError | LockNotHeldError} none of them can be relied on
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
    // eslint-disable-next-line @typescript-eslint/only-throw-error -- what assertHeld() threw
    if (live.length === 0 && failure !== undefined) throw failure;
    return live;
  }

  /** What a write to `entity` at this point shows, held or over: for messages. */
  shown(entity: FencedEntity): readonly Proof[] {
    const held = this.#leasesOf(entity).map(proofBy);
    return [...held, ...(currentOperation()?.handedOver ?? [])];
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
      `expectedLockToken is ${expected}, but the hold on "${proof.key}" has token ${proof.token}. Nothing was written; ` +
        'leave expectedLockToken out where the lock is held.',
      { key: proof.key, store: proof.lease?.store },
    );
  }

  #handedOver(key: string, token: number): Proof {
    const proof = { key, qualifiedKey: this.locks.qualify(key), token, ownerId: null, lease: null };
    currentOperation()?.handedOver.push(proof);
    return proof;
  }
}

function proofBy(lease: Lease): Proof {
  const { key, qualifiedKey, token, ownerId } = lease;
  return { key, qualifiedKey, token, ownerId, lease };
}
