import { jittered, withDeadline, type KeyWatch } from '../../core/index.js';
import type { JuteReader } from './jute.js';
import {
  hasZkCode,
  NODE_DELETED,
  pathAndWatch,
  readStat,
  ZkCode,
  ZkRequest,
  type ZkNode,
} from './zk-packets.js';
import type { ZkConnection } from './zk-connection.js';

/** A server that is only slow is worth waiting for; one that says nothing for this long is not. */
const PATIENCE_MS = 3_000;
const FIRST_RECONNECT_MS = 50;
const LONGEST_RECONNECT_MS = 1_000;

interface Watched {
  readonly ears: Set<() => void>;
  /** The connection that will tell of the next change, if any. */
  armedOn: ZkConnection | undefined;
  /** The one that has told of the changes so far. What happened before it, nobody has heard. */
  knownFrom: ZkConnection | undefined;
}

/** Reads nodes, and hears of their end, on one connection in a session that owns nothing. */
export class NodeReader {
  readonly #watched = new Map<string, Watched>();
  #connection: ZkConnection | undefined;
  #connecting: Promise<ZkConnection> | undefined;
  #nextPing: NodeJS.Timeout | undefined;
  #rearming = false;
  #closed = false;

  constructor(private readonly connect: (signal: AbortSignal) => Promise<ZkConnection>) {}

  /** What is at the path; null when nothing is. May be a moment old: a follower answers. */
  async read(path: string, signal: AbortSignal): Promise<ZkNode | null> {
    try {
      const reply = await abortable(this.#ask(ZkRequest.getData, path, false), signal);
      const data = Buffer.from(reply.bytes());
      return readStat(reply, data);
    } catch (error) {
      if (hasZkCode(error, ZkCode.noNode)) return null;
      throw error;
    }
  }

  watch(path: string, wake: () => void): KeyWatch {
    const ear = (): void => wake();
    const watched = this.#watched.get(path) ?? { ears: new Set(), armedOn: undefined, knownFrom: undefined };
    this.#watched.set(path, watched);
    watched.ears.add(ear);
    const hears = (): boolean => watched.armedOn !== undefined && watched.armedOn.open;
    if (hears()) queueMicrotask(() => watched.ears.has(ear) && ear());
    else void this.#rearm();
    return {
      get hears() {
        return hears();
      },
      stop: () => {
        watched.ears.delete(ear);
        if (watched.ears.size === 0 && this.#watched.get(path) === watched) this.#watched.delete(path);
      },
    };
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#nextPing);
    this.#connection?.destroy();
  }

  /** Until every path that somebody waits for is armed. Never rejects. */
  async #rearm(): Promise<void> {
    if (this.#rearming) return;
    this.#rearming = true;
    for (
      let delayMs = FIRST_RECONNECT_MS;
      !this.#closed;
      delayMs = Math.min(delayMs * 2, LONGEST_RECONNECT_MS)
    ) {
      const deaf = [...this.#watched].filter(([, { armedOn }]) => !armedOn?.open);
      if (deaf.length === 0) break;
      const armed = await Promise.all(
        deaf.map(([path, watched]) => this.#arm(path, watched).catch(() => false)),
      );
      if (armed.includes(false)) await new Promise((resolve) => setTimeout(resolve, jittered(delayMs)));
    }
    this.#rearming = false;
  }

  /** Look and watch are one request, so that nothing can happen between them; whoever waits then looks for himself. */
  async #arm(path: string, watched: Watched): Promise<boolean> {
    const connection = await this.#connected();
    watched.armedOn = connection; // the change may be told in one breath with the answer
    const there = await this.#ask(ZkRequest.exists, path, true).then(
      () => true,
      (error: unknown) => {
        if (hasZkCode(error, ZkCode.noNode)) return false;
        watched.armedOn = undefined;
        throw error;
      },
    );
    const heardNothingBefore = watched.knownFrom !== connection;
    watched.knownFrom = connection;
    if (heardNothingBefore || !there) ring(watched);
    return true;
  }

  #changed(path: string, type: number): void {
    const watched = this.#watched.get(path);
    if (!watched) return;
    watched.armedOn = undefined; // a watch of ZooKeeper speaks once
    if (type === NODE_DELETED) ring(watched);
    void this.#rearm();
  }

  async #ask(type: number, path: string, watch: boolean): Promise<JuteReader> {
    const connection = await this.#connected();
    return withDeadline(PATIENCE_MS, (signal) => connection.ask(type, pathAndWatch(path, watch), signal));
  }

  #connected(): Promise<ZkConnection> {
    if (this.#closed) return Promise.reject(new Error('this ZooKeeper store is closed'));
    if (this.#connection?.open) return Promise.resolve(this.#connection);
    this.#connecting ??= withDeadline(PATIENCE_MS, this.connect)
      .then((connection) => this.#begin(connection))
      .finally(() => (this.#connecting = undefined));
    return this.#connecting;
  }

  #begin(connection: ZkConnection): ZkConnection {
    if (this.#closed) connection.destroy();
    this.#connection = connection;
    connection.onWatch = (path, type) => this.#changed(path, type);
    connection.onClose = () => {
      clearTimeout(this.#nextPing);
      if (this.#watched.size > 0) void this.#rearm();
    };
    this.#pingLater(connection);
    return connection;
  }

  /** The next one is planned when this one has been answered or given up, so that no two overlap. */
  #pingLater(connection: ZkConnection): void {
    if (connection !== this.#connection || !connection.open) return; // there is a newer one, with pings of its own
    clearTimeout(this.#nextPing);
    const ping = async (): Promise<void> => {
      await withDeadline(PATIENCE_MS, (signal) => connection.ping(signal)).catch(() => undefined);
      this.#pingLater(connection);
    };
    this.#nextPing = setTimeout(() => void ping(), connection.timeoutMs / 3).unref();
  }
}

function ring({ ears }: Watched): void {
  for (const ear of ears) ear();
}

/** `answer`, unless the signal comes first; what it comes to then is dropped. */
function abortable<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
    answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
