import { jittered, reliableMs, systemClock, type Busy, type Claim, type Grant } from '../../core/index.js';
import { Ballot } from './ballot.js';
import { majorityOf, poll } from './poll.js';
import type { GrantAnswer, RedlockNode } from './redlock-node.js';
import { tooFewVotes } from './too-few-votes.js';

/**
 * No acquisition takes longer: a server that lost its data may be sure after that time that no grant of before is still to be
 * counted.
 */
export const LONGEST_ACQUISITION_MS = 5_000;
/** A server that is slower does not hold up what the others can decide without it. */
const PATIENCE_MS = 500;
/** Contenders that come at the same time agree after one or two; more are needed only when others come in between. */
const MOST_ROUNDS = 8;
const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 16;
const GIVE_BACK_TIMEOUT_MS = 1_000;

/**
 * One acquisition: a majority has to grant the key, and then to agree on the token before anybody is told of it.
 *
 * The token is the highest fence of those that granted. Servers with a lower one are raised to it, but only while the key is
 * still ours there and no later owner has raised it further. Two acquisitions share a server that agreed to both, and there
 * the later grant began with a higher fence: so tokens differ and rise, whatever clocks, delays and expiry do.
 */
export class Acquisition {
  readonly #asked = new Map<RedlockNode, Promise<GrantAnswer>>();
  readonly #ballot: Ballot;
  readonly #startedAtMs = systemClock.monotonicMs();
  readonly #limitMs: number;

  constructor(
    private readonly nodes: readonly RedlockNode[],
    private readonly claim: Claim,
    timeoutMs: number,
  ) {
    this.#ballot = new Ballot(nodes.length);
    this.#limitMs = Math.min(timeoutMs, reliableMs(claim.ttlMs), LONGEST_ACQUISITION_MS);
  }

  /** @throws {Error} no majority answered, or not in time: what the servers have done is unknown */
  async run(): Promise<Grant | Busy> {
    let outcome: Grant | Busy | undefined;
    try {
      outcome = await this.#contend();
      return outcome;
    } finally {
      if (outcome?.kind !== 'granted') this.#giveBack();
    }
  }

  async #contend(): Promise<Grant | Busy> {
    await this.#ask(this.nodes);
    for (let round = 1; ; round += 1) {
      if (this.#ballot.won) return this.#agree();
      if (!this.#ballot.heard) throw this.#tooFew('The lock was not taken');
      if (this.#ballot.yields(this.claim.ownerId) || round === MOST_ROUNDS || this.#leftMs === 0)
        return this.#ballot.busy;
      await pauseMs(jittered(Math.min(FIRST_PAUSE_MS * 2 ** (round - 1), LONGEST_PAUSE_MS)));
      await this.#ask(this.#ballot.takenOn());
    }
  }

  /** Servers that are asked a second time have answered: nothing of ours is under way to them. */
  async #ask(nodes: readonly RedlockNode[]): Promise<void> {
    const asked = nodes.map((node) => {
      const answer = node.grant(this.claim, this.#leftMs);
      this.#ballot.forget(node);
      this.#asked.set(node, answer);
      return answer.then((given) => this.#ballot.note(node, given));
    });
    await poll(asked, () => this.#ballot.decided, Math.min(this.#leftMs / 2, PATIENCE_MS));
    if (!this.#ballot.heard) await poll(asked, () => this.#ballot.heard, this.#leftMs);
  }

  /** @throws {Error} too few agree, or they took too long */
  async #agree(): Promise<Grant> {
    const { token } = this.#ballot;
    if (token === null) throw this.#tooFew('The token that was given before is not known');
    const majority = majorityOf(this.nodes.length);
    const agreed = [...this.#asked].map(([node, answer]) => this.#raise(node, answer, token));
    const decided = (answers: readonly boolean[]): boolean => {
      const noes = answers.filter((aye) => !aye).length;
      return answers.length - noes >= majority || noes >= majority;
    };
    const answers = await poll(agreed, decided, this.#leftMs);
    if (answers.filter(Boolean).length < majority) throw this.#tooFew('The token was not agreed on');
    if (this.#leftMs === 0)
      throw new Error(`a majority of Redis servers took longer than ${this.#limitMs} ms`);
    return { kind: 'granted', token };
  }

  /** Whether the server agrees to the token: it granted the key with it, or has taken it over since. */
  async #raise(node: RedlockNode, asked: Promise<GrantAnswer>, token: number): Promise<boolean> {
    const answer = await asked;
    if (answer.kind !== 'granted') return false;
    if (answer.fence >= token) return answer.fence === token;
    return (await node.raise(this.claim, token, this.#leftMs)).kind === 'raised';
  }

  /** What was granted, and what may be granted yet. Nobody waits for it. */
  #giveBack(): void {
    for (const [node, asked] of this.#asked) {
      void asked.then(({ kind }) => {
        if (kind !== 'granted' && kind !== 'silent') return;
        return node.withdraw(this.claim, GIVE_BACK_TIMEOUT_MS);
      });
    }
  }

  get #leftMs(): number {
    return Math.max(0, this.#startedAtMs + this.#limitMs - systemClock.monotonicMs());
  }

  #tooFew(what: string): Error {
    return tooFewVotes(what, this.nodes, (node) => this.#ballot.answerOf(node));
  }
}

function pauseMs(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, durationMs));
}
