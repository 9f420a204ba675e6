import type { ConnectionSlots, Slotted } from './connection-slots.js';
import { ConnectionLost, SessionEnded, type ZkConnection } from './zk-connection.js';
import { hasZkCode, NO_TICKET, ZkCode, type SessionTicket } from './zk-packets.js';

/** For a session of which nothing is known but that it is to end soon. */
const SHORT_MS = 1_000;

export type OpenConnection = (
  ticket: SessionTicket,
  timeoutMs: number,
  signal: AbortSignal,
) => Promise<ZkConnection>;

/**
 * The session that one lock lives in.
 *
 * It is kept alive by renewals alone: there are no pings. Between them it needs no connection, and goes on with the next.
 */
export class HoldSession implements Slotted {
  #connection: ZkConnection | undefined;
  #asked = 0;
  #usedAtMs = performance.now();
  /** What the server was asked for last. */
  #timeoutMs = SHORT_MS;
  /** Commands take turns: a second connection to the session would end the first. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly connect: OpenConnection,
    private readonly slots: ConnectionSlots,
    public ticket: SessionTicket = NO_TICKET,
  ) {}

  /** True once the server has said that there is such a session. */
  get begun(): boolean {
    return this.ticket.id !== 0n;
  }

  /** True when nobody has used it for so long that the server has ended it. */
  get outlived(): boolean {
    return !this.inUse && performance.now() - this.#usedAtMs > 2 * this.#timeoutMs;
  }

  get inUse(): boolean {
    return this.#asked > 0;
  }

  /**
   * Lets `work` use a connection in this session, whose timeout is `timeoutMs` from then on; undefined leaves it. Begins the
   * session if it is new.
   *
   * @throws {SessionEnded} there is no such session any more
   */
  use<T>(
    timeoutMs: number | undefined,
    signal: AbortSignal,
    work: (connection: ZkConnection) => Promise<T>,
  ): Promise<T> {
    this.#asked += 1;
    this.#usedAtMs = performance.now();
    const turn = this.#turn.then(() => this.#inTurn(timeoutMs, signal, work));
    this.#turn = turn.catch(() => undefined);
    return turn.finally(() => {
      this.#asked -= 1;
      this.slots.changed(this, !this.#connection?.open);
    });
  }

  /** Gives the connection up; the session goes on at the server. */
  vacate(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    connection?.destroy();
  }

  async #inTurn<T>(
    timeoutMs: number | undefined,
    signal: AbortSignal,
    work: (connection: ZkConnection) => Promise<T>,
  ): Promise<T> {
    signal.throwIfAborted();
    try {
      return await work(await this.#connected(timeoutMs, signal));
    } catch (error) {
      if (isMoved(error)) this.vacate();
      if (!this.#connection?.open) this.#connection = undefined;
      throw error;
    }
  }

  async #connected(wishMs: number | undefined, signal: AbortSignal): Promise<ZkConnection> {
    const timeoutMs = wishMs ?? this.#timeoutMs;
    if (this.#connection?.open && this.#timeoutMs === timeoutMs) {
      this.slots.used(this);
      return this.#connection;
    }
    this.vacate();
    await this.slots.enter(this, signal);
    const connection = await this.connect(this.ticket, timeoutMs, signal);
    connection.onClose = () => this.slots.changed(this, true);
    this.#connection = connection;
    this.ticket = connection.ticket;
    this.#timeoutMs = timeoutMs;
    if (connection.timeoutMs < timeoutMs) throw new TimeoutTooLong(timeoutMs, connection.timeoutMs);
    return connection;
  }
}

/** Of two that use one session, each ends the other's connection by coming back; one of them has to be first. */
const TRIES = 6;
const LONGEST_PAUSE_MS = 30;
/** How long the first try waits for its answers, and each further one twice as long: a slow server is only slow. */
const FIRST_PATIENCE_MS = 500;

/**
 * Does again what is the same when it is done twice: a kept connection may have broken long ago, and somebody else may use
 * the session, which ends it.
 *
 * Silence counts as broken. Of two connections that come into a session at once the server may forget one without
 * closing it; when the session has ended, it drops what arrives there and says nothing
 * (`ZooKeeperServer.submitRequestNow`).
 */
export async function again<T>(signal: AbortSignal, step: (signal: AbortSignal) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    const silence = AbortSignal.timeout(FIRST_PATIENCE_MS * 2 ** (tries - 1));
    try {
      return await step(AbortSignal.any([signal, silence]));
    } catch (error) {
      const broken = error instanceof ConnectionLost || isMoved(error) || silence.aborted;
      if (!broken || signal.aborted || tries === TRIES) throw error;
      if (tries > 1) await new Promise((resolve) => setTimeout(resolve, Math.random() * LONGEST_PAUSE_MS));
    }
  }
}

const isMoved = (error: unknown): boolean => hasZkCode(error, ZkCode.sessionMoved);

export class TimeoutTooLong extends Error {
  override readonly name = 'TimeoutTooLong';

  constructor(askedMs: number, keptMs: number) {
    super(
      `ZooKeeper keeps sessions for ${keptMs} ms at most, and ttlMs is ${askedMs}: ` +
        'use a shorter ttlMs, or raise maxSessionTimeout of the server',
    );
  }
}

export const isSessionEnded = (error: unknown): boolean => error instanceof SessionEnded;
