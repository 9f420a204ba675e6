import {
  ConsulError,
  durationMs,
  errorOf,
  jsonOf,
  limitsIn,
  listIn,
  type TtlLimits,
} from './consul-answer.js';
import type { ConsulClient } from './consul-client.js';
import {
  recordIn,
  step,
  transactionIn,
  type HeldKey,
  type KeyRecord,
  type TransactionAnswer,
} from './transaction.js';

export interface NewSession {
  /** For whoever looks at the sessions of the servers. */
  readonly name: string;
  readonly ttlMs: number;
  readonly lockDelayMs: number;
}

export type LockAnswer =
  /** The index of the raft entry that made the key. */
  { readonly kind: 'locked'; readonly createIndex: number } | LockRefusal;

/** `delayed`: by a lock-delay. `why` is Consul's text. */
export interface LockRefusal {
  readonly kind: 'refused';
  readonly delayed: boolean;
  readonly why: string;
}

/** Consul takes no more in one transaction. */
const STEPS_TOGETHER = 64;
/** Shorter than anything that servers keep. */
const IMPOSSIBLE_TTL = '1ns';

/** The commands of Consul that a lock is made of, with its answers read strictly. */
export class ConsulCommands {
  constructor(private readonly client: Pick<ConsulClient, 'ask' | 'askAndWait'>) {}

  /** What is at the key; null when nothing is. */
  async read(name: string, signal: AbortSignal): Promise<KeyRecord | null> {
    return recordIn(await this.client.ask({ method: 'GET', path: `kv/${name}` }, signal));
  }

  /** As {@link read}, and agreed by a majority: a leader that has lost the others does not answer. */
  async readAgreed(name: string, signal: AbortSignal): Promise<KeyRecord | null> {
    return recordIn(await this.client.ask({ method: 'GET', path: `kv/${name}?consistent` }, signal));
  }

  /** Answers when the key has changed since `index`, or after `waitMs`; for index 0 at once. `free`: nobody holds it. */
  async readChange(
    name: string,
    { index, waitMs }: { readonly index: number; readonly waitMs: number },
    signal: AbortSignal,
  ): Promise<{ readonly index: number; readonly free: boolean }> {
    const path = `kv/${name}?index=${index}&wait=${waitMs}ms`;
    const answer = await this.client.askAndWait({ method: 'GET', path }, signal);
    const sessionId = recordIn(answer)?.sessionId ?? null;
    if (!answer.index)
      throw new ConsulError('a query was answered without an index to go on from', undefined);
    return { index: answer.index, free: sessionId === null };
  }

  /** How long the servers keep sessions: they refuse one that is too short, and say so. */
  async ttlLimits(signal: AbortSignal): Promise<TtlLimits> {
    try {
      const sessionId = await this.#createSession('boot', IMPOSSIBLE_TTL, 0, signal);
      await this.destroySession(sessionId, signal);
      return { minMs: 1, maxMs: Infinity };
    } catch (error) {
      const limits = limitsIn(error);
      if (limits) return limits;
      throw error;
    }
  }

  /** Begins a session that holds nothing yet; `signal` alone ends it before it is sent. @returns its id */
  createSession(
    { name, ttlMs, lockDelayMs }: NewSession,
    signal: AbortSignal,
    answerSignal = signal,
  ): Promise<string> {
    return this.#createSession(name, `${ttlMs}ms`, lockDelayMs, signal, answerSignal);
  }

  /** Begins the time of the session anew. @returns its ttl; null when it has ended */
  async renewSession(sessionId: string, signal: AbortSignal): Promise<number | null> {
    const answer = await this.client.ask({ method: 'PUT', path: `session/renew/${sessionId}` }, signal);
    // Somebody else's 404 is no answer: a lease would be given up that is held.
    if (answer.status === 404 && answer.body.includes(sessionId)) return null;
    if (answer.status !== 200) throw errorOf(answer);
    const [session] = listIn(answer) as readonly ({ readonly ID?: unknown; readonly TTL?: unknown } | null)[];
    if (session?.ID === sessionId) return durationMs(String(session.TTL));
    throw new ConsulError('the renewal of a session was answered without it', undefined);
  }

  /** Ends the session, deletes what it still holds, and fails a transaction that is under way with it. */
  async destroySession(sessionId: string, signal: AbortSignal): Promise<void> {
    const answer = await this.client.ask({ method: 'PUT', path: `session/destroy/${sessionId}` }, signal);
    if (answer.status !== 200 || answer.body.trim() !== 'true') throw errorOf(answer);
  }

  /** Makes the key, held by the session, unless it is there. A leftover is replaced. */
  async lock(
    key: HeldKey,
    ownerId: string,
    leftover: KeyRecord | null,
    signal: AbortSignal,
  ): Promise<LockAnswer> {
    const replaced = leftover ? [step.deleteUnchanged(key.name, leftover.modifyIndex)] : [];
    const made = [step.absent(key.name), step.lock(key, ownerId), step.get(key.name)];
    const answer = await this.#transact([...replaced, ...made], signal);
    if (answer.kind === 'refused') {
      return { kind: 'refused', delayed: /lock delay/i.test(answer.why), why: answer.why };
    }
    return { kind: 'locked', createIndex: heldIn(key.sessionId, answer.records.at(-1)).createIndex };
  }

  /** Gives the key from its session to another in one step; false when it has not been that session's. */
  async move(key: HeldKey, ownerId: string, toSessionId: string, signal: AbortSignal): Promise<boolean> {
    const taken = step.lock({ ...key, sessionId: toSessionId }, ownerId);
    const answer = await this.#transact([step.heldBy(key), step.unlock(key, ownerId), taken], signal);
    if (answer.kind === 'refused') return false;
    heldIn(toSessionId, answer.records.at(-1));
    return true;
  }

  /** Deletes the key if the session holds it. The session goes on. */
  async remove(key: HeldKey, signal: AbortSignal): Promise<boolean> {
    const answer = await this.#transact([step.heldBy(key), step.delete(key.name)], signal);
    if (answer.kind === 'refused') return false;
    heldIn(key.sessionId, answer.records[0]);
    return true;
  }

  /** Those that are held by their sessions, agreed by a majority. */
  async heldOf(keys: readonly HeldKey[], signal: AbortSignal): Promise<ReadonlySet<HeldKey>> {
    const parts: (readonly HeldKey[])[] = [];
    for (let i = 0; i < keys.length; i += STEPS_TOGETHER) parts.push(keys.slice(i, i + STEPS_TOGETHER));
    const held = await Promise.all(parts.map((part) => this.#heldOfPart(part, signal)));
    return new Set(held.flat());
  }

  /** Makes and deletes the key in one step: shows that this token may, and that the servers know how. */
  async tryOut(key: HeldKey, signal: AbortSignal): Promise<void> {
    const steps = [step.absent(key.name), step.lock(key, 'boot'), step.get(key.name), step.delete(key.name)];
    const answer = await this.#transact(steps, signal);
    if (answer.kind === 'refused') throw new ConsulError(answer.why, undefined);
  }

  async #heldOfPart(keys: readonly HeldKey[], signal: AbortSignal): Promise<readonly HeldKey[]> {
    if (keys.length === 0) return [];
    const answer = await this.#transact(keys.map(step.heldBy), signal);
    if (answer.kind === 'done') {
      keys.forEach(({ sessionId }, i) => heldIn(sessionId, answer.records[i]));
      return keys;
    }
    const others = keys.filter((_, i) => !answer.failed.includes(i));
    if (others.length === keys.length) throw new ConsulError(answer.why, undefined);
    return this.#heldOfPart(others, signal); // that they were not named is no yes
  }

  async #createSession(
    name: string,
    ttl: string,
    lockDelayMs: number,
    signal: AbortSignal,
    answerSignal = signal,
  ): Promise<string> {
    const bound = { NodeChecks: [] }; // by default sessions end with a health check, for which one lost message is enough
    const body = { Name: name, TTL: ttl, Behavior: 'delete', LockDelay: `${lockDelayMs}ms`, ...bound };
    const request = { method: 'PUT', path: 'session/create', body } as const;
    const answer = await this.client.ask(request, signal, answerSignal);
    if (answer.status !== 200) throw errorOf(answer);
    const { ID } = jsonOf(answer) as { readonly ID?: unknown };
    if (typeof ID === 'string' && /^[\w-]+$/.test(ID)) return ID;
    throw new ConsulError('a session was made without an id', undefined);
  }

  async #transact(steps: readonly object[], signal: AbortSignal): Promise<TransactionAnswer> {
    return transactionIn(
      await this.client.ask({ method: 'PUT', path: 'txn?consistent', body: steps }, signal),
    );
  }
}

/** @throws {ConsulError} a yes that does not say so of this session: somebody else's, in between */
function heldIn(sessionId: string, record: KeyRecord | undefined): KeyRecord {
  if (record?.sessionId === sessionId) return record;
  throw new ConsulError('a transaction was answered without what it is about', undefined);
}
