import type { Claim } from '../../core/index.js';
import type { ConsulCommands } from './consul-commands.js';

/**
 * How long the answer to a creation is waited for that nobody wants any more, in order to end what it has made. It has a
 * connection for as long, which renewals may need: they have more time than this, if the ttl is 10 s at the least.
 */
const LATE_ANSWER_MS = 5_000;
const SWEEP_EVERY = 256;
/** Servers keep a session for two ttls. */
const TTLS_KEPT = 2;

export type LockClaimer = Pick<Claim, 'key' | 'ownerId'>;

/**
 * The sessions that locks of this process live in, one for each: Consul chooses their ids, so they are known from its answers,
 * or from the lock itself.
 */
export class HoldSessions {
  readonly #known = new Map<string, { readonly sessionId: string; readonly outlivedAtMs: number }>();
  #remembered = 0;

  constructor(
    private readonly commands: ConsulCommands,
    private readonly lockDelayMs: number,
  ) {}

  of(owner: LockClaimer): string | undefined {
    return this.#known.get(nameOfOwner(owner))?.sessionId;
  }

  /** Begins a session. Whoever gives up before it is answered has it ended when the answer comes. */
  async begin(name: string, ttlMs: number, signal: AbortSignal): Promise<string> {
    const session = { name: `lock ${name.slice(0, 200)}`, ttlMs, lockDelayMs: this.lockDelayMs };
    const answered = this.commands.createSession(session, signal, AbortSignal.timeout(LATE_ANSWER_MS));
    try {
      return await unlessAborted(answered, signal);
    } catch (error) {
      void answered.then((sessionId) => this.end(sessionId)).catch(() => undefined); // without an answer nobody knows it
      throw error;
    }
  }

  /** Ends a session that holds nothing. Never rejects: it ends by itself, too. */
  async end(sessionId: string, signal = AbortSignal.timeout(LATE_ANSWER_MS)): Promise<void> {
    await this.commands.destroySession(sessionId, signal).catch(() => undefined);
  }

  /** Now and then drops those that were never given back, because nobody answered until they had ended. */
  remember(claim: Claim, sessionId: string): void {
    const nowMs = performance.now();
    this.#known.set(nameOfOwner(claim), { sessionId, outlivedAtMs: nowMs + TTLS_KEPT * claim.ttlMs });
    this.#remembered += 1;
    if (this.#remembered % SWEEP_EVERY > 0) return;
    for (const [name, { outlivedAtMs }] of this.#known) if (outlivedAtMs < nowMs) this.#known.delete(name);
  }

  forget(owner: LockClaimer): void {
    this.#known.delete(nameOfOwner(owner));
  }

  clear(): void {
    this.#known.clear();
  }
}

export const nameOfOwner = ({ key, ownerId }: LockClaimer): string => JSON.stringify([key, ownerId]);

function unlessAborted<T>(answered: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => reject(new Error('nobody waits for the session any more'));
    signal.addEventListener('abort', giveUp);
    if (signal.aborted) giveUp();
    answered.then(resolve, reject).finally(() => signal.removeEventListener('abort', giveUp));
  });
}
