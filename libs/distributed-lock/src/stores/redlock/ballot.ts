import type { Busy } from '../../core/index.js';
import { majorityOf } from './poll.js';
import type { Granted, GrantAnswer, RedlockNode, Taken } from './redlock-node.js';

/** What servers have answered to one owner that asks for one key. */
export class Ballot {
  readonly #answers = new Map<RedlockNode, GrantAnswer>();
  readonly #majority: number;

  constructor(private readonly servers: number) {
    this.#majority = majorityOf(servers);
  }

  note(node: RedlockNode, answer: GrantAnswer): void {
    this.#answers.set(node, answer);
  }

  /** The server is asked again. */
  forget(node: RedlockNode): void {
    this.#answers.delete(node);
  }

  answerOf(node: RedlockNode): GrantAnswer | undefined {
    return this.#answers.get(node);
  }

  get won(): boolean {
    return this.#granted.length >= this.#majority;
  }

  /** A majority has told who has the key there: enough to know what goes on. */
  get heard(): boolean {
    return this.#granted.length + this.#taken.length >= this.#majority;
  }

  /** No further answer changes anything: won by a newcomer, or lost to one holder. */
  get decided(): boolean {
    if (this.won) return !this.#granted.some(({ again }) => again);
    return [...this.#rivals.values()].some((votes) => votes >= this.#majority);
  }

  /**
   * Whether somebody comes before `ownerId`: who has the key on more servers, and of equals the smaller owner id. All
   * contenders see the same votes, so one of them goes on, and the others give back what he needs.
   */
  yields(ownerId: string): boolean {
    const ours = this.#granted.length;
    return [...this.#rivals].some(([owner, votes]) => votes > ours || (votes === ours && owner < ownerId));
  }

  takenOn(): readonly RedlockNode[] {
    return [...this.#answers].filter(([, { kind }]) => kind === 'busy').map(([node]) => node);
  }

  /**
   * The token to agree on; null when it cannot be told. Of a newcomer it is the highest fence. An owner who asks again has
   * perhaps agreed on a lower one before, and is told no other.
   */
  get token(): number | null {
    const fences = this.#granted.map(({ fence }) => fence);
    const highest = Math.max(...fences);
    if (!this.#granted.some(({ again }) => again)) return highest;
    const silent = this.servers - this.#granted.length - this.#taken.length;
    const agreed = [...new Set(fences)].filter(
      (fence) => fences.filter((each) => each === fence).length + silent >= this.#majority,
    );
    return agreed.length > 1 ? null : (agreed[0] ?? highest);
  }

  /** Free enough when so many servers are that, with those that are ours, they are a majority. */
  get busy(): Busy {
    const remaining = this.#taken.map(({ remainingMs }) => remainingMs).sort((a, b) => a - b);
    const lastMs = remaining[this.#majority - this.#granted.length - 1] ?? -1;
    return { kind: 'busy', retryAfterMs: lastMs >= 0 ? lastMs : null };
  }

  get #granted(): readonly Granted[] {
    return [...this.#answers.values()].filter((answer): answer is Granted => answer.kind === 'granted');
  }

  get #taken(): readonly Taken[] {
    return [...this.#answers.values()].filter((answer): answer is Taken => answer.kind === 'busy');
  }

  /** On how many servers each other owner has the key. */
  get #rivals(): ReadonlyMap<string, number> {
    const votes = new Map<string, number>();
    for (const { holder } of this.#taken) votes.set(holder, (votes.get(holder) ?? 0) + 1);
    return votes;
  }
}
