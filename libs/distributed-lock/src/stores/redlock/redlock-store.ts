import {
  isLockError,
  StoreUnavailableError,
  systemClock,
  type Busy,
  type Claim,
  type Grant,
  type KeyWatch,
  type LockStore,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewalAnswer,
} from '../../core/index.js';
import { messageOf } from '../../redis-server/index.js';
import { Acquisition } from './acquisition.js';
import { checkServers } from './boot-check.js';
import { Membership } from './membership.js';
import { watchMajority } from './majority-watch.js';
import { majorityOf, poll } from './poll.js';
import { RedlockNode, type ReleaseVote, type RenewAnswer } from './redlock-node.js';
import { linksOf, prefixOf, type RedlockStoreOptions } from './redlock-options.js';
import { tooFewVotes, type Said } from './too-few-votes.js';

/** Shorter leases would be over before a busy network has answered twice. */
const MIN_TTL_MS = 50;
/** A server that is gone never answers. */
const GOODBYE_MS = 500;

/**
 * Locks on an odd number of independent Redis servers (5 or newer), of which a majority has to agree: no replicas of each
 * other, no Sentinels, no members of a cluster. A minority may be away, at any time and for any time.
 *
 * Tokens rise whatever clocks and networks do, as long as a majority keeps its data. A server that lost all of its data is
 * kept out until its old leases have ended, and comes back by itself. One that comes back with *older* data than it had votes
 * as if nothing had been lost: use `appendonly yes` with `appendfsync always`, or no persistence at all.
 *
 * Exclusion needs clocks: when those of a majority of servers are set forward, leases end early there, and a key may be
 * granted twice; the fence refuses the older owner. At its first use all servers have to answer.
 *
 * @throws {LockConfigInvalidError} an even number of servers, one of them twice, or a prefix with braces
 */
export function redlockStore(options: RedlockStoreOptions): LockStore {
  return new RedlockStore(options);
}

class RedlockStore implements LockStore {
  readonly kind = 'redlock';
  readonly minTtlMs = MIN_TTL_MS;
  readonly keepsReleasedKeys = true;
  readonly #nodes: readonly RedlockNode[];
  readonly #majority: number;
  readonly #membership: Membership;
  readonly #allowEviction: boolean;
  #established: Promise<void> | undefined;

  constructor(options: RedlockStoreOptions) {
    const links = linksOf(options);
    const keyPrefix = prefixOf(options);
    const onOutside = (node: RedlockNode): void => this.#membership.noticed(node);
    this.#nodes = links.map(
      ({ link, name }) => new RedlockNode(link, name, keyPrefix, links.length, onOutside),
    );
    this.#majority = majorityOf(links.length);
    this.#membership = new Membership(this.#nodes);
    this.#allowEviction = options.allowEviction ?? false;
  }

  async open(): Promise<void> {
    await checkServers(this.#nodes, this.#allowEviction);
    try {
      await this.#begin();
    } catch (cause) {
      if (isLockError(cause)) throw cause;
      throw new StoreUnavailableError(`${messageOf(cause)}. Nothing was locked; try again later.`, { cause });
    }
  }

  async tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    const askedAtMs = systemClock.monotonicMs();
    await this.#begin();
    const leftMs = timeoutMs - (systemClock.monotonicMs() - askedAtMs);
    return new Acquisition(this.#nodes, claim, leftMs).run();
  }

  /** A majority that answers, and does not prolong a lease, has ended it, whatever the others would say. */
  async renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    if (claims.length === 0) return [];
    const votes = await this.#poll(
      (node) => node.renew(claims, timeoutMs),
      (answers) => claims.every((_, i) => this.#isDecided(answers.map((answer) => renewedBy(answer, i)))),
    );
    const heard = [...votes.values()].filter(({ kind }) => kind !== 'silent');
    if (heard.length < this.#majority) throw this.#tooFew('Leases were not renewed', votes);
    return claims.map((_, i) => (this.#ayes(heard.map((vote) => renewedBy(vote, i))) ? 'renewed' : 'lost'));
  }

  /** A majority that has nothing to release tells that the lease had ended before: an answer, and nothing to try again. */
  async release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    const votes = await this.#poll(
      (node) => node.release(request, timeoutMs),
      (answers) => this.#isDecided(answers.map(releasedBy)),
    );
    const said = [...votes.values()].map(releasedBy);
    if (this.#ayes(said)) return 'released';
    if (this.#isDecided(said)) return 'not-owner';
    throw this.#tooFew('It is unknown whether the lock was released', votes);
  }

  watch(key: string, wake: () => void): KeyWatch {
    return watchMajority(this.#nodes, key, wake);
  }

  /** Releases go to all servers, and only a majority is waited for: the others get a moment. */
  async close(): Promise<void> {
    this.#membership.close();
    await poll(
      this.#nodes.map((node) => node.settled()),
      () => false,
      GOODBYE_MS,
    );
    await Promise.all(this.#nodes.map((node) => node.close()));
  }

  /** Before its first use a Redlock has to be founded. */
  async #begin(): Promise<void> {
    this.#established ??= this.#membership.established();
    try {
      await this.#established;
    } catch (error) {
      this.#established = undefined;
      throw error;
    }
  }

  async #poll<A extends RenewAnswer | ReleaseVote>(
    ask: (node: RedlockNode) => Promise<A>,
    decided: (answers: readonly A[]) => boolean,
  ): Promise<ReadonlyMap<RedlockNode, A>> {
    const asked = this.#nodes.map(async (node) => [node, await ask(node)] as const);
    return new Map(await poll(asked, (answers) => decided(answers.map(([, answer]) => answer))));
  }

  #ayes(votes: readonly (boolean | null)[]): boolean {
    return votes.filter((vote) => vote === true).length >= this.#majority;
  }

  /** No further vote changes the result. */
  #isDecided(votes: readonly (boolean | null)[]): boolean {
    return this.#ayes(votes) || votes.filter((vote) => vote === false).length >= this.#majority;
  }

  #tooFew(what: string, votes: ReadonlyMap<RedlockNode, Said>): Error {
    return tooFewVotes(what, this.#nodes, (node) => votes.get(node));
  }
}

/** Yes, no, or nothing that can be relied on. */
function renewedBy(vote: RenewAnswer, i: number): boolean | null {
  if (vote.kind === 'silent') return null;
  return vote.kind === 'renewals' && vote.renewed[i] === true;
}

function releasedBy({ kind }: ReleaseVote): boolean | null {
  return kind === 'silent' ? null : kind === 'released';
}
