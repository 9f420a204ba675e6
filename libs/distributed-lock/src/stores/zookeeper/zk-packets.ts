import { JuteWriter, type JuteReader } from './jute.js';

/** Types of requests, as they go over the wire. */
export const ZkRequest = {
  exists: 3,
  getData: 4,
  create: 1,
  create2: 15,
  multi: 14,
  ping: 11,
  auth: 100,
  closeSession: -11,
} as const;

/** Numbers that stand where the number of a request would. */
export const ZkReplyTo = { watch: -1, ping: -2, auth: -4 } as const;

export const ZkCode = {
  ok: 0,
  noNode: -101,
  noAuth: -102,
  nodeExists: -110,
  /** Said for a session that is gone; one that is about to go is called expired. */
  sessionUnknown: -12,
  sessionExpired: -112,
  sessionMoved: -118,
  authFailed: -115,
} as const;

export const NODE_DELETED = 2;

const CHECK = 13;
const ANY_VERSION = -1;
const ALL_PERMISSIONS = 31;
const EPHEMERAL = 1;

/** What ZooKeeper refused. */
export class ZkError extends Error {
  override readonly name = 'ZkError';

  constructor(readonly code: number) {
    super(`ZooKeeper answered with error ${code}`);
  }
}

export const hasZkCode = (error: unknown, code: number): boolean =>
  error instanceof ZkError && error.code === code;

/** A user: what she creates belongs to her alone. */
export interface ZkAuth {
  readonly scheme: string;
  readonly credentials: string;
}

/** A session is a lease: everything that was made in it ends with it. */
export interface SessionTicket {
  readonly id: bigint;
  /** Whoever knows it may go on with the session, on any connection. */
  readonly password: Buffer;
}

export interface ZkNode {
  readonly data: Buffer;
  readonly createZxid: number;
  /** 0 for one that belongs to no session. */
  readonly sessionId: bigint;
}

export const NO_TICKET: SessionTicket = { id: 0n, password: Buffer.alloc(16) };

export function connectFrame({ id, password }: SessionTicket, timeoutMs: number): Buffer {
  const writer = new JuteWriter().int(0).long(0n).int(timeoutMs).long(id).bytes(password);
  return writer.bool(false).frame();
}

export interface Connected {
  /** What the server made of the timeout; 0 when the session has ended. */
  readonly timeoutMs: number;
  readonly ticket: SessionTicket;
}

export function readConnected(reader: JuteReader): Connected {
  reader.int();
  const timeoutMs = reader.int();
  return { timeoutMs, ticket: { id: reader.long(), password: Buffer.from(reader.bytes()) } };
}

export function requestFrame(xid: number, type: number, write?: (body: JuteWriter) => void): Buffer {
  const writer = new JuteWriter().int(xid).int(type);
  write?.(writer);
  return writer.frame();
}

export const pathAndWatch =
  (path: string, watch: boolean) =>
  (body: JuteWriter): void =>
    void body.text(path).bool(watch);

export const newNode =
  (path: string, data: Buffer, node: { readonly ephemeral: boolean; readonly owned: boolean }) =>
  (body: JuteWriter): void => {
    body.text(path).bytes(data).int(1).int(ALL_PERMISSIONS);
    if (node.owned) body.text('auth').text('');
    else body.text('world').text('anyone');
    body.int(node.ephemeral ? EPHEMERAL : 0);
  };

/** A transaction that changes nothing: it goes through the leader and a majority, as a write does. */
export const checkOf =
  (path: string) =>
  (body: JuteWriter): void =>
    void body.int(CHECK).bool(false).int(-1).text(path).int(ANY_VERSION).int(-1).bool(true).int(-1);

export const authOf =
  ({ scheme, credentials }: ZkAuth) =>
  (body: JuteWriter): void =>
    void body.int(0).text(scheme).bytes(Buffer.from(credentials));

/** Reads a Stat, and of it what a lock needs. */
export function readStat(reader: JuteReader, data: Buffer = Buffer.alloc(0)): ZkNode {
  const createZxid = Number(reader.long()); // exact to 2^53: two million elections
  for (let i = 0; i < 3; i += 1) reader.long(); // modified at, created and modified when
  for (let i = 0; i < 3; i += 1) reader.int(); // versions
  return { data, createZxid, sessionId: reader.long() };
}
