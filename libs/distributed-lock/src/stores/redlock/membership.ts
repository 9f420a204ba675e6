import { randomBytes } from 'node:crypto';

import { jittered, LockConfigInvalidError, systemClock } from '../../core/index.js';
import { LONGEST_ACQUISITION_MS } from './acquisition.js';
import { majorityOf, poll } from './poll.js';
import { tooFewVotes, type Said } from './too-few-votes.js';
import { wrongSize, type LookAnswer, type RedlockNode } from './redlock-node.js';

type Member = Extract<LookAnswer, { kind: 'member' }>;
type Joining = Extract<LookAnswer, { kind: 'joining' }>;
type Found<A> = readonly (readonly [RedlockNode, A])[];

const LOOK_TIMEOUT_MS = 2_000;
/** Clocks of two machines may differ by this much while one of them waits. */
const DRIFT_SHARE = 0.01;
const MARGIN_MS = 50;
/** Other processes may be about to let servers in. */
const MOST_TRIES = 4;

/**
 * Which servers vote.
 *
 * A server that has lost its data has forgotten locks and tokens that it once agreed to. It is kept out until every lease and
 * every acquisition of before has ended, and then begins above every token that a majority of the others has seen. Only when
 * no server remembers anything, all of them begin at once: that is how a Redlock begins its life.
 */
export class Membership {
  /** When this process first saw the present emptiness of a server. */
  readonly #seen = new Map<RedlockNode, { readonly id: string; readonly atMs: number }>();
  #round: Promise<Found<LookAnswer>> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(private readonly nodes: readonly RedlockNode[]) {}

  /** This server says that it does not vote. It will, by and by, as long as this process lives. */
  noticed(node: RedlockNode): void {
    if (this.#timer === undefined || !this.#seen.has(node)) this.#beginRound();
  }

  /**
   * Resolves when a majority votes.
   *
   * @throws {LockConfigInvalidError} a server belongs to another set
   * @throws {Error} a majority does not answer, or has lost its data
   */
  async established(): Promise<void> {
    if (await this.#majorityVotes()) return;
    for (let tries = 1; ; tries += 1) {
      const found = await this.#admit();
      const members = found.filter(([, { kind }]) => kind === 'member');
      if (members.length >= majorityOf(this.nodes.length)) return;
      const said = new Map(found);
      if (tries === MOST_TRIES)
        throw tooFewVotes('Locks cannot be taken', this.nodes, (node) => saidBy(said.get(node)));
      await new Promise((resolve) => setTimeout(resolve, jittered(MARGIN_MS)));
    }
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /** Does not wait for a server that is away. */
  async #majorityVotes(): Promise<boolean> {
    const asked = this.nodes.map((node) => this.#lookAt(node));
    const votes = (found: Found<LookAnswer>): boolean =>
      found.filter(([, answer]) => answer.kind === 'member' && answer.servers === this.nodes.length).length >=
      majorityOf(this.nodes.length);
    const established = votes(await poll(asked, votes));
    for (const each of asked) void each.then(([node, { kind }]) => kind === 'joining' && this.noticed(node));
    return established;
  }

  #beginRound(): void {
    if (!this.#closed) void this.#admit().catch(() => undefined); // a wrong set is told to whoever asks for a lock
  }

  /** Lets in who may come in now, and looks what came of it. */
  #admit(): Promise<Found<LookAnswer>> {
    this.#round ??= this.#admitDue().finally(() => (this.#round = undefined));
    return this.#round;
  }

  async #admitDue(): Promise<Found<LookAnswer>> {
    const startedAtMs = systemClock.monotonicMs();
    const found = await this.#look();
    const joining = found.filter(
      (each): each is readonly [RedlockNode, Joining] => each[1].kind === 'joining',
    );
    if (joining.length === 0) return found;
    if (joining.length === this.nodes.length) await this.#found(joining);
    else await this.#letInDue(startedAtMs, found, joining);
    return this.#look();
  }

  async #letInDue(startedAtMs: number, found: Found<LookAnswer>, joining: Found<Joining>): Promise<void> {
    const members = found.flatMap(([, answer]) => (answer.kind === 'member' ? [answer] : []));
    const longestMs = Math.max(LONGEST_ACQUISITION_MS, ...members.map((member) => member.longestMs));
    const waitMs = longestMs * (1 + DRIFT_SHARE) + MARGIN_MS;
    const due = joining.filter(([node]) => startedAtMs - this.#seenAtMs(node) > waitMs);
    const high = this.#highOf(members, joining, found);
    if (high !== null) await Promise.all(due.map(([node, { id }]) => this.#letIn(node, id, high, longestMs)));
    this.#comeBackIn(high === null || due.length < joining.length ? this.#nextMs(joining, waitMs) : null);
  }

  /**
   * Above every token that was ever agreed on: each of them is known to a majority, of which at most one server has
   * forgotten it. Where too few remember, their clocks, which tokens begin with, are the best that is left; but not while a
   * server that remembers may only be away.
   */
  #highOf(members: readonly Member[], joining: Found<Joining>, found: Found<LookAnswer>): number | null {
    const known = members.map(({ high }) => high);
    if (members.length >= majorityOf(this.nodes.length)) return Math.max(...known);
    if (found.some(([, { kind }]) => kind === 'silent')) return null;
    return Math.max(...known, ...joining.map(([, { clockUs }]) => clockUs));
  }

  /** The second look makes sure that there was one moment at which no server remembered anything. */
  async #found(first: Found<Joining>): Promise<void> {
    const ids = new Map(first.map(([node, { id }]) => [node, id]));
    const second = await this.#look();
    const clocks = second.flatMap(([node, answer]) =>
      answer.kind === 'joining' && answer.id === ids.get(node) ? [answer.clockUs] : [],
    );
    if (clocks.length < this.nodes.length) return this.#comeBackIn(jittered(MARGIN_MS));
    const high = Math.max(...clocks);
    await Promise.all(first.map(([node, { id }]) => this.#letIn(node, id, high, 0)));
  }

  async #look(): Promise<Found<LookAnswer>> {
    const found = await Promise.all(this.nodes.map((node) => this.#lookAt(node)));
    for (const [node, answer] of found)
      if (answer.kind === 'member') requireSize(node, answer.servers, this.nodes.length);
    return found;
  }

  async #lookAt(node: RedlockNode): Promise<readonly [RedlockNode, LookAnswer]> {
    const answer = await node.look(randomBytes(16).toString('hex'), LOOK_TIMEOUT_MS);
    if (answer.kind === 'joining' && this.#seen.get(node)?.id !== answer.id)
      this.#seen.set(node, { id: answer.id, atMs: systemClock.monotonicMs() });
    return [node, answer];
  }

  async #letIn(node: RedlockNode, id: string, high: number, longestMs: number): Promise<void> {
    const { kind } = await node.admit(id, high, longestMs, LOOK_TIMEOUT_MS);
    if (kind === 'member') this.#seen.delete(node);
    else this.#comeBackIn(jittered(MARGIN_MS * 10));
  }

  #seenAtMs(node: RedlockNode): number {
    return this.#seen.get(node)?.atMs ?? Infinity;
  }

  #nextMs(joining: Found<Joining>, waitMs: number): number {
    const due = joining.map(([node]) => this.#seenAtMs(node) + waitMs - systemClock.monotonicMs());
    return Math.max(Math.min(...due.filter((each) => each > 0)), jittered(MARGIN_MS * 10));
  }

  #comeBackIn(delayMs: number | null): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (delayMs === null || this.#closed) return;
    const comeBack = (): void => {
      this.#timer = undefined;
      this.#beginRound();
    };
    this.#timer = setTimeout(comeBack, Number.isFinite(delayMs) ? delayMs : MARGIN_MS * 10).unref();
  }
}

/** Who waits to be let in is, for all others, outside. */
function saidBy(answer: LookAnswer | undefined): Said {
  return answer?.kind === 'joining' ? { kind: 'outside' } : answer;
}

function requireSize(node: RedlockNode, servers: number, here: number): void {
  if (servers === here) return;
  throw new LockConfigInvalidError(`Redis at ${node.name} cannot keep locks: ${wrongSize(servers, here)}`);
}
