import { EtcdError, isLeaseGone, isLeaseTaken } from './gateway-answer.js';
import type { Gateway } from './gateway.js';

/** What is at a key. Numbers of etcd travel as decimal strings; ids of leases stay so. */
export interface KeyRecord {
  readonly value: string;
  readonly createRevision: number;
  /** `0`: without a lease, so it never ends by itself. */
  readonly leaseId: string;
}

export interface TakenKey {
  /** False when something was there already. */
  readonly created: boolean;
  /** What is there now; null when it has gone meanwhile. */
  readonly record: KeyRecord | null;
}

/** The commands of etcd that a lock is made of, with its answers read strictly. */
export class EtcdCommands {
  constructor(private readonly gateway: Pick<Gateway, 'ask' | 'askEach'>) {}

  /** What is at each key, agreed by a majority. At most 100 keys: etcd takes 128 operations in one transaction. */
  async read(keys: readonly string[], signal: AbortSignal): Promise<(KeyRecord | null)[]> {
    const answer = await this.#transact({ success: keys.map(rangeOf) }, signal);
    return keys.map((_, i) => recordIn(answer, i));
  }

  /** Creates the key under the lease, unless it is there. */
  async create(key: string, value: string, leaseId: string, signal: AbortSignal): Promise<TakenKey> {
    const absent = { key: base64(key), target: 'CREATE', result: 'EQUAL', create_revision: '0' };
    const answer = await this.#transact(
      { compare: [absent], success: [putOf(key, value, leaseId), rangeOf(key)], failure: [rangeOf(key)] },
      signal,
    );
    const created = answer.succeeded === true;
    return { created, record: recordIn(answer, created ? 1 : 0) };
  }

  /** Moves the key to another lease if it still holds `value`; its create revision stays. */
  async moveToLease(key: string, value: string, leaseId: string, signal: AbortSignal): Promise<boolean> {
    const command = { compare: [holds(key, value)], success: [putOf(key, value, leaseId)] };
    return (await this.#transact(command, signal)).succeeded === true;
  }

  /** Deletes the key if it holds `value`, and tells under which lease it was; null when it did not. */
  async remove(key: string, value: string, signal: AbortSignal): Promise<KeyRecord | null> {
    const removal = { request_delete_range: { key: base64(key) } };
    const command = { compare: [holds(key, value)], success: [rangeOf(key), removal] };
    const answer = await this.#transact(command, signal);
    return answer.succeeded === true ? recordIn(answer, 0) : null;
  }

  /** Makes a lease, or begins it anew if it is there. @returns for how many seconds the server keeps it */
  async grantLease(leaseId: string, seconds: number, signal: AbortSignal): Promise<number> {
    try {
      const command = { ID: leaseId, TTL: String(seconds) };
      return secondsIn(await this.gateway.ask('lease/grant', command, signal));
    } catch (error) {
      if (!isLeaseTaken(error)) throw error;
      const [kept] = await this.keepAlive([leaseId], signal);
      return kept ?? 0;
    }
  }

  /**
   * Begins leases anew, and asks again for those that were left without an answer: they have not ended.
   *
   * @returns for how many seconds each is kept; 0 for those that have ended
   */
  async keepAlive(leaseIds: readonly string[], signal: AbortSignal): Promise<number[]> {
    const kept = new Map<string, number>();
    for (let missing = leaseIds; missing.length > 0; missing = leaseIds.filter((id) => !kept.has(id))) {
      const commands = missing.map((ID) => ({ ID }));
      const answers = await this.gateway.askEach('lease/keepalive', commands, signal);
      for (const answer of answers) kept.set(String((answer as LeaseAnswer).ID), secondsIn(answer));
      if (!missing.some((id) => kept.has(id)))
        throw new EtcdError('lease/keepalive was answered for none of its leases', undefined);
    }
    return leaseIds.map((leaseId) => Math.max(0, kept.get(leaseId) ?? 0));
  }

  /** For how many whole seconds the lease runs at least; null when it has ended. */
  async remainingSeconds(leaseId: string, signal: AbortSignal): Promise<number | null> {
    const answer = await this.gateway.ask('lease/timetolive', { ID: leaseId }, signal);
    const seconds = secondsIn(answer);
    return seconds < 0 ? null : seconds;
  }

  /** Ends the lease and deletes what is left under it; a transaction that still names it then fails. */
  async revokeLease(leaseId: string, signal: AbortSignal): Promise<void> {
    try {
      await this.gateway.ask('lease/revoke', { ID: leaseId }, signal);
    } catch (error) {
      if (!isLeaseGone(error)) throw error;
    }
  }

  async version(signal: AbortSignal): Promise<string> {
    const answer = await this.gateway.ask('maintenance/status', {}, signal);
    return String((answer as { version?: unknown }).version);
  }

  async #transact(command: object, signal: AbortSignal): Promise<TransactionAnswer> {
    return await this.gateway.ask('kv/txn', command, signal);
  }
}

interface TransactionAnswer {
  readonly succeeded?: unknown;
  readonly responses?: readonly { readonly response_range?: { readonly kvs?: readonly RawRecord[] } }[];
}

interface RawRecord {
  readonly value?: string;
  readonly create_revision?: string;
  readonly lease?: string;
}

interface LeaseAnswer {
  readonly ID?: string;
  readonly TTL?: string;
}

function recordIn({ responses = [] }: TransactionAnswer, at: number): KeyRecord | null {
  const raw = responses[at]?.response_range?.kvs?.[0];
  if (!raw) return null;
  return {
    value: Buffer.from(raw.value ?? '', 'base64').toString(),
    createRevision: Number(raw.create_revision),
    leaseId: raw.lease ?? '0',
  };
}

/** The gateway leaves zeros out. */
const secondsIn = (answer: object): number => Number((answer as LeaseAnswer).TTL ?? 0);

const rangeOf = (key: string): object => ({ request_range: { key: base64(key) } });

const putOf = (key: string, value: string, lease: string): object => ({
  request_put: { key: base64(key), value: base64(value), lease },
});

const holds = (key: string, value: string): object => ({
  key: base64(key),
  target: 'VALUE',
  result: 'EQUAL',
  value: base64(value),
});

export const base64 = (text: string | Uint8Array): string => Buffer.from(text).toString('base64');
