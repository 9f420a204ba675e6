import {
  jittered,
  NativeTokens,
  withDeadline,
  type Busy,
  type Claim,
  type Grant,
  type KeyWatch,
  type LockStore,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewalAnswer,
} from '../../core/index.js';
import { Attempts } from './attempts.js';
import { checkAgent } from './boot-check.js';
import type { TtlLimits } from './consul-answer.js';
import { ConsulClient } from './consul-client.js';
import { ConsulCommands, type LockRefusal } from './consul-commands.js';
import { settingsOf, type ConsulSettings, type ConsulStoreOptions } from './consul-options.js';
import { HoldSessions, type LockClaimer } from './hold-sessions.js';
import { nameOf } from './key-name.js';
import { ReleaseWatch } from './release-watch.js';
import type { HeldKey, KeyRecord } from './transaction.js';

/** Servers do not tell how long a lock-delay runs. Each try costs them three entries of their log. */
const DELAYED_PAUSE_MS = 800;
/** How it is until the servers were asked: they refuse by themselves. */
const UNKNOWN_LIMITS: TtlLimits = { minMs: 1, maxMs: 2 ** 31 - 1 };
const BUSY: Busy = { kind: 'busy', retryAfterMs: null };

/**
 * Locks in Consul 1.8 or newer, through the HTTP API of an agent and without a client library.
 *
 * A lock is one key that a session of its own holds and that ends with it. Its token is the index of the raft entry that made
 * the key plus `tokenOffset`: indexes rise with every change, and fall only when servers lose their data or are rebuilt from
 * an older snapshot. A process that has seen a higher index then takes no locks; raise `tokenOffset` above the last token.
 *
 * Servers keep sessions for 10 s to 24 h (`session_ttl_min` lowers the former), and **for twice their ttl** before they end
 * them: a holder is told of its loss after one ttl, its successor comes after two, plus `lockDelayMs`. A key cannot be kept
 * after its release, so `minHoldMs` is refused. A node that is taken out of the catalogue ends the sessions begun through it.
 *
 * @throws {LockConfigInvalidError} url, token, prefix or numbers make no sense
 */
export function consulStore(options: ConsulStoreOptions): LockStore {
  return new ConsulStore(settingsOf(options));
}

class ConsulStore implements LockStore {
  readonly kind = 'consul';
  readonly keepsReleasedKeys = false;
  readonly #client: ConsulClient;
  readonly #commands: ConsulCommands;
  readonly #sessions: HoldSessions;
  readonly #attempts = new Attempts();
  readonly #tokens: NativeTokens;
  readonly #watch: ReleaseWatch;
  /** Keys that a lock-delay has just kept closed. */
  readonly #delayed = new Map<string, NodeJS.Timeout>();
  #limits = UNKNOWN_LIMITS;

  constructor(private readonly settings: ConsulSettings) {
    this.#client = new ConsulClient(settings.client);
    this.#commands = new ConsulCommands(this.#client);
    this.#sessions = new HoldSessions(this.#commands, settings.lockDelayMs);
    this.#tokens = new NativeTokens('index of Consul', settings.tokenOffset);
    this.#watch = new ReleaseWatch(this.#commands, this.#client.maxWaiting);
  }

  get minTtlMs(): number {
    return this.#limits.minMs;
  }

  get maxTtlMs(): number {
    return this.#limits.maxMs;
  }

  async open(): Promise<void> {
    this.#limits = await checkAgent(this.#commands, this.#client.address, this.settings.keyPrefix);
  }

  tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    return this.#attempts.run(claim, timeoutMs, async (signal) => {
      const record = await this.#commands.read(this.#nameOf(claim), signal);
      if (record && !record.leftover) return this.#found(claim, record, signal);
      return this.#delayed.has(claim.key) ? BUSY : this.#create(claim, record, signal);
    });
  }

  renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    return withDeadline(timeoutMs, (signal) => this.#renew(claims, signal));
  }

  release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    this.#attempts.stop(request);
    return withDeadline(timeoutMs, async (signal) => {
      const key = await this.#keyOf(request, signal);
      const removed = key !== null && (await this.#remove(key, request, signal));
      this.#sessions.forget(request);
      return removed ? 'released' : 'not-owner';
    });
  }

  watch(key: string, wake: () => void): KeyWatch {
    return this.#watch.watch(this.#nameOf({ key }), wake);
  }

  /** What is held goes on at the servers until its session ends. */
  close(): Promise<void> {
    this.#watch.close();
    this.#client.close();
    this.#sessions.clear();
    for (const timer of this.#delayed.values()) clearTimeout(timer);
    this.#delayed.clear();
    return Promise.resolve();
  }

  #nameOf({ key }: { readonly key: string }): string {
    return nameOf(this.settings.keyPrefix, key);
  }

  async #create(claim: Claim, leftover: KeyRecord | null, signal: AbortSignal): Promise<Grant | Busy> {
    const newestBefore = this.#tokens.newest;
    const name = this.#nameOf(claim);
    const sessionId = await this.#sessions.begin(name, ttlOf(claim), signal);
    this.#sessions.remember(claim, sessionId);
    const answer = await this.#commands.lock({ name, sessionId }, claim.ownerId, leftover, signal);
    if (answer.kind === 'locked') return this.#tokens.grant(answer.createIndex, newestBefore);
    await this.#sessions.end(sessionId, signal);
    this.#sessions.forget(claim);
    return this.#refused(claim, answer, signal);
  }

  async #refused(claim: Claim, { delayed, why }: LockRefusal, signal: AbortSignal): Promise<Grant | Busy> {
    if (delayed) {
      this.#pauseAfterDelay(claim.key);
      return BUSY;
    }
    const record = await this.#commands.read(this.#nameOf(claim), signal);
    if (record && !record.leftover) return this.#found(claim, record, signal);
    if (/exists|stale/.test(why)) return { kind: 'busy', retryAfterMs: 0 }; // it was taken, and is free again
    throw new Error(`Consul did not make the lock: ${why}`);
  }

  #pauseAfterDelay(key: string): void {
    clearTimeout(this.#delayed.get(key));
    const tryAgain = (): void => {
      this.#delayed.delete(key);
      this.#watch.wake(this.#nameOf({ key }));
    };
    this.#delayed.set(key, setTimeout(tryAgain, jittered(DELAYED_PAUSE_MS)).unref());
  }

  async #found(claim: Claim, record: KeyRecord, signal: AbortSignal): Promise<Grant | Busy> {
    if (record.sessionId === null) {
      throw new Error(
        `Consul key ${JSON.stringify(this.#nameOf(claim))} is not usable as a lock: it holds a value that no lock made and ` +
          'no session ends. Nothing was locked; remove that key, or choose another keyPrefix.',
      );
    }
    if (record.ownerId !== claim.ownerId) return BUSY;
    this.#sessions.remember(claim, record.sessionId);
    const [answer] = await this.#renew([claim], signal);
    if (answer !== 'renewed') throw new Error('the grant ended while it was asked for again');
    return this.#tokens.grant(record.createIndex, 0);
  }

  /**
   * Sessions first, then a look at the keys that a majority agrees to: a server that has lost the others may still renew
   * sessions that they have ended, but cannot answer the look.
   */
  async #renew(claims: readonly Claim[], signal: AbortSignal): Promise<readonly RenewalAnswer[]> {
    const kept = await Promise.all(claims.map((claim) => this.#keepAlive(claim, signal)));
    const keys = kept.flatMap((each) => (each?.ttlMs == null ? [] : [each.key]));
    const held = await this.#commands.heldOf(keys, signal);
    return Promise.all(
      claims.map(async (claim, i): Promise<RenewalAnswer> => {
        const session = kept[i];
        if (!session) return 'lost';
        if (!held.has(session.key)) return this.#lookAgain(claim, session.key, signal);
        return session.ttlMs === ttlOf(claim) ? 'renewed' : this.#moveToTtl(claim, session.key, signal);
      }),
    );
  }

  /** Null when the lock is not this owner's; `ttlMs` is null when its session has ended. */
  async #keepAlive(
    claim: Claim,
    signal: AbortSignal,
  ): Promise<{ readonly key: HeldKey; readonly ttlMs: number | null } | null> {
    const key = await this.#keyOf(claim, signal);
    if (!key) return null;
    this.#sessions.remember(claim, key.sessionId);
    return { key, ttlMs: await this.#commands.renewSession(key.sessionId, signal) };
  }

  /** After a move to another session whose answer was lost, the lock is held by one that is not known here. */
  async #lookAgain(claim: Claim, { sessionId }: HeldKey, signal: AbortSignal): Promise<RenewalAnswer> {
    const key = await this.#readKeyOf(claim, signal);
    if (key?.sessionId === sessionId)
      throw new Error('Consul says of one session that it holds the lock and has ended');
    if (key) {
      this.#sessions.remember(claim, key.sessionId);
      const [answer] = await this.#renew([claim], signal);
      return answer ?? 'lost';
    }
    this.#sessions.forget(claim);
    void this.#sessions.end(sessionId);
    return 'lost';
  }

  /** A session keeps its ttl for ever: another one needs another session. The key, and with it the token, stays. */
  async #moveToTtl(claim: Claim, key: HeldKey, signal: AbortSignal): Promise<RenewalAnswer> {
    const sessionId = await this.#sessions.begin(key.name, ttlOf(claim), signal);
    const moved = await this.#commands.move(key, claim.ownerId, sessionId, signal);
    if (moved) this.#sessions.remember(claim, sessionId);
    void this.#sessions.end(moved ? key.sessionId : sessionId);
    return moved ? 'renewed' : this.#lookAgain(claim, key, signal);
  }

  /** Removes the key, then ends its session: the other way round a lock-delay would follow. */
  async #remove(key: HeldKey, owner: LockClaimer, signal: AbortSignal): Promise<boolean> {
    const removed = await this.#commands.remove(key, signal);
    const ended = this.#commands.destroySession(key.sessionId, signal);
    // Without the key, an acquire may still be under way: unknown until its session has ended, which fails it.
    await (removed ? ended.catch(() => undefined) : ended);
    if (removed) return true;
    const moved = await this.#readKeyOf(owner, signal);
    return moved !== null && moved.sessionId !== key.sessionId && this.#remove(moved, owner, signal);
  }

  /** The session that holds this owner's lock: known here, or told by the lock itself. */
  async #keyOf(owner: LockClaimer, signal: AbortSignal): Promise<HeldKey | null> {
    const sessionId = this.#sessions.of(owner);
    return sessionId === undefined
      ? this.#readKeyOf(owner, signal)
      : { name: this.#nameOf(owner), sessionId };
  }

  async #readKeyOf(owner: LockClaimer, signal: AbortSignal): Promise<HeldKey | null> {
    const name = this.#nameOf(owner);
    const record = await this.#commands.readAgreed(name, signal);
    if (record?.ownerId !== owner.ownerId || record.sessionId === null) return null;
    return { name, sessionId: record.sessionId };
  }
}

/** Whole milliseconds; a lease is better a little longer in the store than in its holder's mind. */
const ttlOf = ({ ttlMs }: Claim): number => Math.ceil(ttlMs);
