import {
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
import { checkEnsemble, type SessionLimits } from './boot-check.js';
import { ConnectionSlots } from './connection-slots.js';
import { again, HoldSession, isSessionEnded } from './hold-session.js';
import { ownerOf, pathOf } from './lock-node.js';
import { askOwnNode, createLockNode, createRoot, endSession } from './lock-steps.js';
import { NodeReader } from './node-reader.js';
import { ZkConnection } from './zk-connection.js';
import { NO_TICKET, type SessionTicket, type ZkNode } from './zk-packets.js';
import { settingsOf, type ZooKeeperSettings, type ZooKeeperStoreOptions } from './zookeeper-options.js';

/** The session that reads and listens owns nothing: how long it is kept matters to nobody. */
const READER_TIMEOUT_MS = 10_000;
const SWEEP_EVERY = 256;
/** How it is until the server was asked: it makes shorter timeouts longer. */
const UNKNOWN_LIMITS: SessionLimits = { minMs: 1, maxMs: 2 ** 31 - 1 };

/**
 * Locks in ZooKeeper 3.5 or newer, through a client of our own.
 *
 * A lock is one ephemeral node in a session of its own, whose timeout is the ttl and which only renewals keep alive. Its
 * token is the transaction that created the node (czxid) plus `tokenOffset`: these rise with every change and every new
 * leader, and fall only when the ensemble loses its data. A process that has seen a higher one then takes no locks.
 *
 * The server bounds timeouts (2 to 20 ticks by default: 4 to 40 s), and ends sessions up to a tick late. It cannot keep a
 * key after its release, so `minHoldMs` is refused.
 *
 * @throws {LockConfigInvalidError} hosts, root or numbers make no sense
 */
export function zookeeperStore(options: ZooKeeperStoreOptions): LockStore {
  return new ZooKeeperStore(settingsOf(options));
}

type LockClaimer = Pick<Claim, 'key' | 'ownerId'>;

class ZooKeeperStore implements LockStore {
  readonly kind = 'zookeeper';
  readonly keepsReleasedKeys = false;
  readonly #reader: NodeReader;
  readonly #tokens: NativeTokens;
  readonly #slots: ConnectionSlots;
  /** By key and owner id: what this process has taken, or is about to take. */
  readonly #sessions = new Map<string, HoldSession>();
  #limits = UNKNOWN_LIMITS;
  #remembered = 0;
  #host = 0;
  #closed = false;

  constructor(private readonly settings: ZooKeeperSettings) {
    this.#slots = new ConnectionSlots(settings.maxConnections);
    this.#tokens = new NativeTokens('czxid of ZooKeeper', settings.tokenOffset);
    this.#reader = new NodeReader((signal) => this.#connect(NO_TICKET, READER_TIMEOUT_MS, signal));
  }

  get minTtlMs(): number {
    return this.#limits.minMs;
  }

  get maxTtlMs(): number {
    return this.#limits.maxMs;
  }

  async open(): Promise<void> {
    const { hosts, root } = this.settings;
    const address = hosts.map(({ host, port }) => `${host}:${port}`).join(', ');
    const makeRoot = (signal: AbortSignal): Promise<void> => this.#makeRoot(signal);
    this.#limits = await checkEnsemble(this.#connect, makeRoot, { address, root });
  }

  tryAcquire(claim: Claim, timeoutMs: number): Promise<Grant | Busy> {
    return withDeadline(timeoutMs, async (signal) => {
      const node = await this.#reader.read(this.#pathOf(claim), signal);
      return node ? this.#found(claim, node, signal) : this.#create(claim, signal);
    });
  }

  renew(claims: readonly Claim[], timeoutMs: number): Promise<readonly RenewalAnswer[]> {
    return withDeadline(timeoutMs, (signal) =>
      Promise.all(claims.map((claim) => this.#renew(claim, signal))),
    );
  }

  release(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseAnswer> {
    return withDeadline(timeoutMs, async (signal) => {
      const session = await this.#sessionOf(request, signal);
      if (!session) return 'not-owner';
      const owned = await this.#owns(session, request, undefined, signal);
      // Ended already means: by us, and the answer was lost; or it ran out just now, and was ours until then.
      await again(signal, (one) => session.use(undefined, one, (each) => endSession(each, one))).catch(
        (error: unknown) => {
          if (!isSessionEnded(error)) throw error;
        },
      );
      this.#forget(request);
      return owned ? 'released' : 'not-owner';
    });
  }

  watch(key: string, wake: () => void): KeyWatch {
    return this.#reader.watch(this.#pathOf({ key }), wake);
  }

  /** What is held goes on at the server until its ttl is over. */
  close(): Promise<void> {
    this.#closed = true;
    this.#reader.close();
    for (const session of this.#sessions.values()) session.vacate();
    this.#sessions.clear();
    return Promise.resolve();
  }

  readonly #connect = async (
    ticket: SessionTicket,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<ZkConnection> => {
    if (this.#closed) throw new Error('this ZooKeeper store is closed');
    const { hosts, auth } = this.settings;
    const used = this.#host;
    try {
      const at = hosts[used] as (typeof hosts)[0];
      return await ZkConnection.open({ at, auth, ticket, timeoutMs }, signal);
    } catch (error) {
      if (!isSessionEnded(error) && this.#host === used) this.#host = (used + 1) % hosts.length;
      throw error;
    }
  };

  #pathOf({ key }: { readonly key: string }): string {
    return pathOf(this.settings.root, key);
  }

  async #makeRoot(signal: AbortSignal): Promise<void> {
    const connection = await this.#connect(NO_TICKET, READER_TIMEOUT_MS, signal);
    try {
      await createRoot(connection, this.settings.root, signal);
      await endSession(connection, signal);
    } finally {
      connection.destroy();
    }
  }

  async #create(claim: Claim, signal: AbortSignal): Promise<Grant | Busy> {
    const newestBefore = this.#tokens.newest;
    const session = new HoldSession(this.#connect, this.#slots);
    this.#remember(claim, session);
    const node = await this.#createIn(session, claim, signal);
    if (node) return this.#tokens.grant(node.createZxid, newestBefore);
    this.#forget(claim);
    return { kind: 'busy', retryAfterMs: null };
  }

  async #createIn(session: HoldSession, claim: Claim, signal: AbortSignal): Promise<ZkNode | null> {
    try {
      return await session.use(timeoutOf(claim), signal, async (connection) => {
        const path = this.#pathOf(claim);
        const created = await createLockNode(connection, path, claim.ownerId, this.settings, signal);
        if (!created) await endSession(connection, signal);
        return created;
      });
    } catch (error) {
      if (!session.begun) this.#forget(claim); // there is nothing to give back
      throw error;
    }
  }

  async #found(claim: Claim, node: ZkNode, signal: AbortSignal): Promise<Grant | Busy> {
    const owner = ownerOf(node);
    if (!owner) {
      throw new Error(
        `ZooKeeper node ${JSON.stringify(this.#pathOf(claim))} is not usable as a lock: it was not made by one, or never ` +
          'ends. Nothing was locked; remove that node, or choose another root.',
      );
    }
    if (owner.ownerId !== claim.ownerId) return { kind: 'busy', retryAfterMs: null };
    if ((await this.#renew(claim, signal)) === 'renewed') return this.#tokens.grant(node.createZxid, 0);
    throw new Error('the grant ended while it was asked for again');
  }

  async #renew(claim: Claim, signal: AbortSignal): Promise<RenewalAnswer> {
    const session = await this.#sessionOf(claim, signal);
    if (!session) return 'lost';
    return (await this.#owns(session, claim, timeoutOf(claim), signal)) ? 'renewed' : 'lost';
  }

  /** Whether the lock lives in the session, whose timeout begins anew. */
  async #owns(
    session: HoldSession,
    owner: LockClaimer,
    timeoutMs: number | undefined,
    signal: AbortSignal,
  ): Promise<boolean> {
    const path = this.#pathOf(owner);
    try {
      return await again(signal, (one) =>
        session.use(timeoutMs, one, (connection) => askOwnNode(connection, path, one)),
      );
    } catch (error) {
      if (!isSessionEnded(error)) throw error;
      this.#forget(owner);
      return false;
    }
  }

  /** The session that this owner's lock lives in: ours, or that of another process, which the lock itself tells. */
  async #sessionOf(owner: LockClaimer, signal: AbortSignal): Promise<HoldSession | null> {
    const known = this.#sessions.get(nameOf(owner));
    if (known) return known;
    const node = await this.#reader.read(this.#pathOf(owner), signal);
    const found = node && ownerOf(node);
    if (found?.ownerId !== owner.ownerId) return null;
    const session = new HoldSession(this.#connect, this.#slots, found.ticket);
    this.#remember(owner, session);
    return session;
  }

  /** Now and then drops those that were never given back, because nobody answered until they had ended. */
  #remember(owner: LockClaimer, session: HoldSession): void {
    this.#sessions.set(nameOf(owner), session);
    this.#remembered += 1;
    if (this.#remembered % SWEEP_EVERY > 0) return;
    for (const [name, { outlived }] of this.#sessions) if (outlived) this.#sessions.delete(name);
  }

  #forget(owner: LockClaimer): void {
    this.#sessions.get(nameOf(owner))?.vacate();
    this.#sessions.delete(nameOf(owner));
  }
}

const nameOf = ({ key, ownerId }: LockClaimer): string => JSON.stringify([key, ownerId]);

/** Whole milliseconds; a lease is better a little longer in the store than in its holder's mind. */
const timeoutOf = ({ ttlMs }: Claim): number => Math.ceil(ttlMs);
