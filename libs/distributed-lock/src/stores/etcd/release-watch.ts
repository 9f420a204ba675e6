import type { IncomingMessage } from 'node:http';

import { jittered, pause, systemClock, type KeyWatch } from '../../core/index.js';
import { base64 } from './etcd-commands.js';
import { parseLine } from './gateway-answer.js';
import type { Gateway } from './gateway.js';

const FIRST_RECONNECT_MS = 50;
const LONGEST_RECONNECT_MS = 1_000;
/** Who waits for one lock soon waits for another: the stream is worth keeping for a while. */
const LINGER_MS = 10_000;

interface Watched {
  readonly events?: readonly { readonly kv?: { readonly key?: string } }[];
  readonly created?: boolean;
  readonly canceled?: boolean;
}

/**
 * Hears which locks become free, by release or because their lease ended: one stream for all keys that anybody waits
 * for here, open while somebody does.
 */
export class ReleaseWatch {
  readonly #waiting = new Map<string, Set<() => void>>();
  #stream: AbortController | undefined;
  #linger: NodeJS.Timeout | undefined;
  #hears = false;

  constructor(
    private readonly gateway: Gateway,
    private readonly prefix: string,
  ) {}

  watch(key: string, wake: () => void): KeyWatch {
    const name = base64(this.prefix + key);
    const ear = (): void => wake();
    const ears = this.#waiting.get(name) ?? new Set();
    this.#waiting.set(name, ears.add(ear));
    this.#open();
    if (this.#hears) queueMicrotask(() => ears.has(ear) && ear());
    const hears = (): boolean => this.#hears;
    return {
      get hears() {
        return hears();
      },
      stop: () => {
        ears.delete(ear);
        if (ears.size === 0 && this.#waiting.get(name) === ears) this.#waiting.delete(name);
        if (this.#waiting.size === 0) this.#closeSoon();
      },
    };
  }

  close(): void {
    clearTimeout(this.#linger);
    this.#stream?.abort();
    this.#stream = undefined;
    this.#hears = false;
  }

  #open(): void {
    clearTimeout(this.#linger);
    if (this.#stream) return;
    this.#stream = new AbortController();
    void this.#listen(this.#stream.signal);
  }

  #closeSoon(): void {
    clearTimeout(this.#linger);
    this.#linger = setTimeout(() => this.close(), LINGER_MS).unref();
  }

  /** Begins anew for as long as anybody waits. Never rejects. */
  async #listen(signal: AbortSignal): Promise<void> {
    for (let delayMs = FIRST_RECONNECT_MS; !signal.aborted;) {
      const began = await this.#follow(signal).catch(() => false); // the core asks by itself meanwhile
      if (!signal.aborted) this.#hears = false;
      delayMs = began ? FIRST_RECONNECT_MS : Math.min(delayMs * 2, LONGEST_RECONNECT_MS);
      await pause(systemClock, { timeoutMs: jittered(delayMs), signals: [signal] });
    }
  }

  /** @returns true when the stream had begun before it ended */
  async #follow(signal: AbortSignal): Promise<boolean> {
    const range = { key: base64(this.prefix), range_end: base64(afterPrefix(this.prefix)) };
    const command = { create_request: { ...range, filters: ['NOPUT'] } };
    const response = await this.gateway.stream('watch', command, signal);
    for await (const line of linesOf(response)) {
      const { events = [], created, canceled } = (parseLine(line).result ?? {}) as Watched;
      if (created === true) this.#begun();
      for (const { kv } of events) this.#ring(kv?.key);
      if (canceled === true) break;
    }
    return this.#hears;
  }

  /** Whatever became free before is not told: everybody has to look. */
  #begun(): void {
    this.#hears = true;
    for (const name of this.#waiting.keys()) this.#ring(name);
  }

  #ring(name: string | undefined): void {
    for (const ear of this.#waiting.get(name ?? '') ?? []) ear();
  }
}

async function* linesOf(response: IncomingMessage): AsyncGenerator<string> {
  let rest = '';
  for await (const chunk of response.setEncoding('utf8') as AsyncIterable<string>) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    yield* lines.filter((line) => line.trim() !== '');
  }
}

/** The first key behind all that begin with `prefix`. */
export function afterPrefix(prefix: string): Uint8Array {
  const bytes = Buffer.from(prefix); // UTF-8 has no byte 0xff: the last one can always be raised
  bytes[bytes.length - 1] = (bytes[bytes.length - 1] as number) + 1;
  return bytes;
}
