import { connect, type Socket } from 'node:net';

import { JuteFrames, type JuteReader, type JuteWriter } from './jute.js';
import {
  authOf,
  connectFrame,
  readConnected,
  requestFrame,
  ZkCode,
  ZkError,
  ZkReplyTo,
  ZkRequest,
  type Connected,
  type SessionTicket,
  type ZkAuth,
} from './zk-packets.js';

export interface ZkHost {
  readonly host: string;
  readonly port: number;
}

export interface ConnectionWish {
  readonly at: ZkHost;
  readonly auth: ZkAuth | undefined;
  /** The session to go on with, or none for a new one. */
  readonly ticket: SessionTicket;
  /** How long the server should keep the session after it has heard of it last. */
  readonly timeoutMs: number;
}

interface Pending {
  readonly xid: number;
  resolve(reply: JuteReader): void;
  reject(error: Error): void;
}

/** The connection ended before the answer came: whether the request was carried out is unknown. */
export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost';
}

/** The session had ended when we came back to it. */
export class SessionEnded extends Error {
  override readonly name = 'SessionEnded';

  constructor() {
    super('the session has ended');
  }
}

/** One connection to one server, in one session. It never connects anew, and ends with the first thing that is wrong. */
export class ZkConnection {
  onWatch: (path: string, type: number) => void = () => undefined;
  onClose: () => void = () => undefined;
  readonly #frames = new JuteFrames();
  readonly #pending: Pending[] = [];
  readonly #socket: Socket;
  #connected: Connected | undefined;
  #lastXid = 0;
  #ended: Error | undefined;

  private constructor({ host, port }: ZkHost) {
    this.#socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 });
    this.#socket.on('error', (cause) => this.#end(new ConnectionLost(cause.message, { cause })));
    this.#socket.on('close', () => this.#end(new ConnectionLost(`the connection to ${host}:${port} broke`)));
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk));
  }

  /** @throws {SessionEnded} there is no such session any more */
  static async open(
    { at, auth, ticket, timeoutMs }: ConnectionWish,
    signal: AbortSignal,
  ): Promise<ZkConnection> {
    const connection = new ZkConnection(at);
    const opened = connection.#expect(0, connectFrame(ticket, timeoutMs), signal);
    connection.#connected = readConnected(await opened);
    if (connection.timeoutMs === 0) {
      connection.destroy();
      throw new SessionEnded();
    }
    if (auth)
      await connection.#expect(
        ZkReplyTo.auth,
        requestFrame(ZkReplyTo.auth, ZkRequest.auth, authOf(auth)),
        signal,
      );
    return connection;
  }

  get open(): boolean {
    return this.#ended === undefined;
  }

  get ticket(): SessionTicket {
    return (this.#connected as Connected).ticket;
  }

  /** What the server made of the timeout that it was asked for. */
  get timeoutMs(): number {
    return (this.#connected as Connected).timeoutMs;
  }

  /**
   * The answer to one request; requests are carried out in order.
   *
   * @throws {ZkError} what ZooKeeper refused
   */
  ask(
    type: number,
    write: ((body: JuteWriter) => void) | undefined,
    signal: AbortSignal,
  ): Promise<JuteReader> {
    this.#lastXid += 1;
    return this.#expect(this.#lastXid, requestFrame(this.#lastXid, type, write), signal);
  }

  ping(signal: AbortSignal): Promise<JuteReader> {
    return this.#expect(ZkReplyTo.ping, requestFrame(ZkReplyTo.ping, ZkRequest.ping), signal);
  }

  /** The session goes on at the server, for as long as its timeout. */
  destroy(): void {
    this.#end(new ConnectionLost('this connection to ZooKeeper was closed'));
  }

  async #expect(xid: number, frame: Buffer, signal: AbortSignal): Promise<JuteReader> {
    signal.throwIfAborted();
    if (this.#ended) throw this.#ended;
    // What is not answered in time may be half-open: its successor is a new connection.
    const giveUp = (): void => this.destroy();
    signal.addEventListener('abort', giveUp);
    try {
      return await new Promise<JuteReader>((resolve, reject) => {
        this.#pending.push({ xid, resolve, reject });
        this.#socket.write(frame);
      });
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  #read(chunk: Buffer): void {
    try {
      for (const reader of this.#frames.push(chunk)) this.#take(reader);
    } catch (error) {
      this.#end(error as Error);
    }
  }

  #take(reader: JuteReader): void {
    if (!this.#connected) return this.#pending.shift()?.resolve(reader);
    const [xid, , code] = [reader.int(), reader.long(), reader.int()];
    if (xid === ZkReplyTo.watch) return this.#watched(reader);
    const at = this.#pending.findIndex((pending) => pending.xid === xid);
    const [pending] = this.#pending.splice(at, at < 0 ? 0 : 1);
    if (!pending) throw new Error(`ZooKeeper answered request ${xid}, which nobody sent`);
    if (code === ZkCode.ok) pending.resolve(reader);
    else pending.reject(new ZkError(code));
  }

  #watched(reader: JuteReader): void {
    const type = reader.int();
    reader.int();
    const path = reader.text();
    this.onWatch(path, type);
  }

  #end(error: Error): void {
    if (this.#ended) return;
    this.#ended = error;
    this.#socket.destroy();
    for (const pending of this.#pending.splice(0)) pending.reject(error);
    this.onClose();
  }
}
