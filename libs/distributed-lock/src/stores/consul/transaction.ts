import { ConsulError, errorOf, jsonOf, listIn, type ConsulAnswer } from './consul-answer.js';

/** What is at a key. */
export interface KeyRecord {
  /** Null when it is no lock of ours, but something else. */
  readonly ownerId: string | null;
  /** Null when nobody holds it. */
  readonly sessionId: string | null;
  /** A lock that was taken from its session by hand: nobody holds it, and what is left of it may be replaced. */
  readonly leftover: boolean;
  /** Of the raft entry that made the key; stays when the key is changed. */
  readonly createIndex: number;
  readonly modifyIndex: number;
}

/** A key, and the session that holds it or is to hold it. */
export interface HeldKey {
  readonly name: string;
  readonly sessionId: string;
}

export type TransactionAnswer =
  | { readonly kind: 'done'; readonly records: readonly KeyRecord[] }
  /** Nothing of it was done. `failed` are places of steps, `why` is Consul's text. */
  | { readonly kind: 'refused'; readonly failed: readonly number[]; readonly why: string };

interface RawRecord {
  readonly Value?: string | null;
  readonly Session?: string;
  /** How often it was locked. */
  readonly LockIndex?: number;
  readonly CreateIndex?: number;
  readonly ModifyIndex?: number;
}

interface RawTransaction {
  readonly Results?: readonly { readonly KV?: RawRecord }[] | null;
  readonly Errors?: readonly { readonly OpIndex: number; readonly What: string }[] | null;
}

/** @throws {ConsulError} it was not for the state of the keys that it was refused */
export function transactionIn(answer: ConsulAnswer): TransactionAnswer {
  if (answer.status !== 200 && answer.status !== 409) throw errorOf(answer);
  const { Results, Errors } = (jsonOf(answer) ?? {}) as RawTransaction;
  const errors = Errors ?? [];
  if (answer.status === 200 && errors.length === 0) {
    return { kind: 'done', records: (Results ?? []).map(({ KV }) => recordOf(KV ?? {})) };
  }
  const why = errors.map(({ What }) => What).join('; ');
  if (why === '' || /permission denied|acl not found/i.test(why)) throw errorOf(answer);
  return { kind: 'refused', failed: errors.map(({ OpIndex }) => OpIndex), why };
}

/** The answer to a read: null when nothing is at the key. */
export function recordIn(answer: ConsulAnswer): KeyRecord | null {
  // Somebody else's 404 is no answer: a lease would be given up that is held.
  if (answer.status === 404 && answer.index !== null) return null;
  if (answer.status !== 200) throw errorOf(answer);
  const [raw] = listIn(answer) as readonly RawRecord[];
  if (raw) return recordOf(raw);
  throw new ConsulError('a read was answered with nothing', undefined);
}

export const step = {
  absent: (name: string): object => verb('check-not-exists', { Key: name }),
  heldBy: ({ name, sessionId }: HeldKey): object => verb('check-session', { Key: name, Session: sessionId }),
  lock: ({ name, sessionId }: HeldKey, ownerId: string): object =>
    verb('lock', { Key: name, Session: sessionId, Value: valueOf(ownerId) }),
  unlock: ({ name, sessionId }: HeldKey, ownerId: string): object =>
    verb('unlock', { Key: name, Session: sessionId, Value: valueOf(ownerId) }),
  get: (name: string): object => verb('get', { Key: name }),
  delete: (name: string): object => verb('delete', { Key: name }),
  deleteUnchanged: (name: string, modifyIndex: number): object =>
    verb('delete-cas', { Key: name, Index: modifyIndex }),
};

const verb = (name: string, rest: object): object => ({ KV: { Verb: name, ...rest } });

const valueOf = (ownerId: string): string => Buffer.from(JSON.stringify({ ownerId })).toString('base64');

function recordOf({ Value, Session = '', LockIndex = 0, CreateIndex, ModifyIndex }: RawRecord): KeyRecord {
  if (!Number.isSafeInteger(CreateIndex)) {
    throw new ConsulError(
      "what is at a key was told without its index: the answer is none of Consul's",
      undefined,
    );
  }
  const ownerId = ownerIn(Value);
  return {
    ownerId,
    sessionId: Session === '' ? null : Session,
    leftover: Session === '' && LockIndex > 0 && (ownerId !== null || !Value),
    createIndex: Number(CreateIndex),
    modifyIndex: Number(ModifyIndex),
  };
}

function ownerIn(value: string | null | undefined): string | null {
  try {
    const said: unknown = JSON.parse(Buffer.from(value ?? '', 'base64').toString());
    const { ownerId } = (said ?? {}) as { readonly ownerId?: unknown };
    return typeof ownerId === 'string' ? ownerId : null;
  } catch {
    return null; // not written by us
  }
}
