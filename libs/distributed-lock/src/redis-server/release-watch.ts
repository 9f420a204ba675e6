import { jittered, type KeyWatch } from '../core/index.js';
import type { RedisLink, RedisSubscriber } from './redis-client.js';

const RECONNECT_MS = 200;
/** Who waits for one lock soon waits for another: the connection is worth keeping for a while. */
const LINGER_MS = 10_000;
/** A server that is frozen or cut off leaves its subscribers in silence. */
const PING_MS = 3_000;

/**
 * Hears which locks were released: one connection with one channel for each lock that anybody waits for here, open while
 * somebody does. Leases that end by themselves are not told.
 */
export class ReleaseWatch {
  readonly #waiting = new Map<string, Set<() => void>>();
  /** Channels that the server has said we listen to. */
  readonly #heard = new Set<string>();
  #subscriber: RedisSubscriber | undefined;
  #pings: NodeJS.Timeout | undefined;
  #later: NodeJS.Timeout | undefined;
  #linger: NodeJS.Timeout | undefined;

  constructor(private readonly link: RedisLink) {}

  watch(channel: string, wake: () => void): KeyWatch {
    clearTimeout(this.#linger);
    const ear = (): void => wake();
    const ears = this.#waiting.get(channel) ?? new Set();
    this.#waiting.set(channel, ears.add(ear));
    if (this.#heard.has(channel)) queueMicrotask(() => ears.has(ear) && ear());
    else if (ears.size === 1) this.#listen([channel]);
    const heard = this.#heard;
    return {
      get hears() {
        return heard.has(channel);
      },
      stop: () => {
        ears.delete(ear);
        if (ears.size === 0 && this.#waiting.get(channel) === ears) this.#forget(channel);
      },
    };
  }

  close(): void {
    clearTimeout(this.#linger);
    clearTimeout(this.#later);
    this.#later = undefined;
    this.#waiting.clear();
    this.#drop();
  }

  #listen(channels: readonly string[]): void {
    if (!this.#subscriber) return this.#open();
    const subscriber = this.#subscriber;
    const begun = (): void => {
      if (this.#subscriber !== subscriber) return;
      for (const channel of channels) this.#begun(channel);
    };
    // Refused, e.g. by an ACL: the core then asks in short intervals. Broken: told by the 'end' event.
    subscriber.subscribe(...channels).then(begun, () => undefined);
  }

  /** Whatever was released before is not told: everybody has to look. */
  #begun(channel: string): void {
    if (!this.#waiting.has(channel)) return;
    this.#heard.add(channel);
    this.#ring(channel);
  }

  #ring(channel: string): void {
    for (const ear of this.#waiting.get(channel) ?? []) ear();
  }

  #open(): void {
    clearTimeout(this.#later);
    this.#later = undefined;
    const subscriber = this.link.openSubscriber?.();
    if (!subscriber) return this.#openLater();
    this.#subscriber = subscriber;
    subscriber.on('message', (channel) => this.#ring(channel));
    subscriber.on('error', () => undefined); // the 'end' event follows
    subscriber.on('end', () => this.#ended(subscriber));
    this.#pingLater(subscriber);
    this.#listen([...this.#waiting.keys()]);
  }

  #pingLater(subscriber: RedisSubscriber): void {
    const ping = async (): Promise<void> => {
      await hearsOrEnds(subscriber);
      if (this.#subscriber === subscriber) this.#pingLater(subscriber);
    };
    this.#pings = setTimeout(() => void ping(), PING_MS).unref();
  }

  #ended(subscriber: RedisSubscriber): void {
    if (this.#subscriber !== subscriber) return;
    this.#drop();
    this.#openLater();
  }

  #openLater(): void {
    if (this.#waiting.size === 0) return;
    this.#later ??= setTimeout(() => this.#open(), jittered(RECONNECT_MS)).unref();
  }

  #forget(channel: string): void {
    this.#waiting.delete(channel);
    this.#heard.delete(channel);
    this.#subscriber?.unsubscribe(channel).catch(() => undefined); // broken: nothing is heard anyway
    if (this.#waiting.size > 0) return;
    clearTimeout(this.#linger);
    this.#linger = setTimeout(() => this.close(), LINGER_MS).unref();
  }

  #drop(): void {
    const subscriber = this.#subscriber;
    clearTimeout(this.#pings);
    this.#subscriber = undefined;
    this.#heard.clear();
    subscriber?.disconnect();
  }
}

async function hearsOrEnds(subscriber: RedisSubscriber): Promise<void> {
  const silent = setTimeout(() => subscriber.disconnect(), PING_MS - 1_000);
  await subscriber.ping().catch(() => undefined); // broken: told by the 'end' event
  clearTimeout(silent);
}
