import { messageOf } from '../../redis-server/index.js';

interface Asked {
  readonly key: string;
  readonly terms: string;
  readonly timeoutMs: number;
  /** Throws if the reply makes no sense. */
  readonly answer: (reply: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** Sends one command about several keys; its reply has one answer for each. */
export type AskTogether = (
  keys: readonly string[],
  args: readonly string[],
  timeoutMs: number,
) => Promise<unknown>;

/** With more, one side would wait while the other works, and other clients of the server as well. */
const MOST_TOGETHER = 32;

/**
 * Questions that come in one turn of the event loop travel as one command: with many calls in flight, most of what a
 * question costs is its own packet and its own script.
 */
export class ClaimBatches {
  #asked: Asked[] = [];
  #mostTogether: number;

  constructor(
    private readonly send: AskTogether,
    mostTogether = MOST_TOGETHER,
  ) {
    this.#mostTogether = mostTogether;
  }

  /** What `read` makes of the reply. It is read on the spot: another promise for each question would be felt. */
  ask<A>(key: string, terms: string, timeoutMs: number, read: (reply: unknown) => A): Promise<A> {
    return new Promise((resolve, reject) => {
      const answer = (reply: unknown): void => resolve(read(reply));
      this.#asked.push({ key, terms, timeoutMs, answer, reject });
      // After all promises of this turn, each of which may still ask something.
      if (this.#asked.length === 1) process.nextTick(() => this.#flush());
    });
  }

  #flush(): void {
    const asked = this.#asked;
    this.#asked = [];
    // Of equal size: the server works on one while this side works on another.
    const together = Math.ceil(asked.length / Math.ceil(asked.length / this.#mostTogether));
    for (let i = 0; i < asked.length; i += together) void this.#ask(asked.slice(i, i + together));
  }

  async #ask(asked: readonly Asked[]): Promise<void> {
    try {
      const [keys, args]: [string[], string[]] = [[], []];
      let timeoutMs = 0;
      for (const one of asked) {
        keys.push(one.key);
        args.push(one.terms);
        timeoutMs = Math.max(timeoutMs, one.timeoutMs);
      }
      const replies = await this.send(keys, args, timeoutMs);
      if (!Array.isArray(replies) || replies.length !== asked.length)
        throw new TypeError(`Redis did not answer each of ${asked.length} questions.`);
      asked.forEach((one, i) => answerOne(one, replies[i]));
    } catch (error) {
      if (asked.length > 1 && messageOf(error).startsWith('CROSSSLOT')) return this.#askEach(asked);
      for (const { reject } of asked) reject(error);
    }
  }

  /** In a cluster a command is about one key. Nothing was carried out. */
  async #askEach(asked: readonly Asked[]): Promise<void> {
    this.#mostTogether = 1;
    await Promise.all(asked.map((one) => this.#ask([one])));
  }
}

function answerOne({ answer, reject }: Asked, reply: unknown): void {
  try {
    answer(reply);
  } catch (error) {
    reject(error);
  }
}
