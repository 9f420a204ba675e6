import { jittered, pause, systemClock, withDeadline, type KeyWatch } from '../../core/index.js';
import type { ConsulCommands } from './consul-commands.js';

/** A query that hears nothing is asked anew after this time, so that a connection which broke in silence is noticed. */
const QUERY_MS = 20_000;
/** Consul adds up to a sixteenth, and then has to answer. */
const ANSWER_MS = QUERY_MS * (1 + 1 / 16) + 3_000;
const FIRST_RECONNECT_MS = 50;
const LONGEST_RECONNECT_MS = 1_000;
/** A key that is not there changes with every other key. */
const BETWEEN_LOOKS_MS = 50;

/** The one command that listening takes. */
export type ChangeReader = Pick<ConsulCommands, 'readChange'>;

/**
 * Hears when locks become free, by release or because their session ended: one blocking query for each key that anybody
 * waits for here. Who waits for more keys than there are connections for hears nothing, and asks.
 */
export class ReleaseWatch {
  readonly #waiting = new Map<string, WatchedKey>();
  #closed = false;

  constructor(
    private readonly commands: ChangeReader,
    private readonly maxQueries: number,
  ) {}

  watch(name: string, wake: () => void): KeyWatch {
    const key = this.#waiting.get(name) ?? new WatchedKey(this.commands, name);
    this.#waiting.set(name, key);
    const stopListening = key.listen(wake);
    this.#beginNext();
    return {
      get hears() {
        return key.hears;
      },
      stop: () => {
        stopListening();
        if (key.wanted || this.#waiting.get(name) !== key) return;
        this.#waiting.delete(name);
        key.close();
        this.#beginNext();
      },
    };
  }

  /** For what this process knows by itself. */
  wake(name: string): void {
    this.#waiting.get(name)?.ring();
  }

  close(): void {
    this.#closed = true;
    for (const key of this.#waiting.values()) key.close();
    this.#waiting.clear();
  }

  /** First come, first heard. */
  #beginNext(): void {
    if (this.#closed) return;
    let places = this.maxQueries;
    for (const key of this.#waiting.values()) {
      if (places-- === 0) return;
      key.begin();
    }
  }
}

/** One key, and those that wait for it. */
class WatchedKey {
  hears = false;
  readonly #ears = new Set<() => void>();
  readonly #stop = new AbortController();
  #begun = false;

  constructor(
    private readonly commands: ChangeReader,
    private readonly name: string,
  ) {}

  get wanted(): boolean {
    return this.#ears.size > 0;
  }

  /** @returns what ends it */
  listen(wake: () => void): () => void {
    const ear = (): void => wake();
    this.#ears.add(ear);
    if (this.hears) queueMicrotask(() => this.#ears.has(ear) && ear());
    return () => void this.#ears.delete(ear);
  }

  ring(): void {
    for (const ear of this.#ears) ear();
  }

  begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    void this.#follow(this.#stop.signal);
  }

  close(): void {
    this.hears = false;
    this.#ears.clear();
    this.#stop.abort();
  }

  /** Begins anew for as long as anybody waits. Never rejects. */
  async #follow(signal: AbortSignal): Promise<void> {
    for (
      let delayMs = FIRST_RECONNECT_MS;
      !signal.aborted;
      delayMs = Math.min(delayMs * 2, LONGEST_RECONNECT_MS)
    ) {
      const heard = await this.#hear(signal);
      if (heard) delayMs = FIRST_RECONNECT_MS;
      await pause(systemClock, { timeoutMs: jittered(delayMs), signals: [signal] });
    }
  }

  /** Goes from change to change until a query fails. @returns whether one had been answered */
  async #hear(signal: AbortSignal): Promise<boolean> {
    let index = 0;
    try {
      while (!signal.aborted) {
        const seen = await this.#query(index, signal);
        if (signal.aborted) break;
        if (!this.hears || seen.free) this.ring();
        this.hears = true;
        index = seen.index < index ? 0 : seen.index; // it fell: the servers were restored, and would not answer for long
        if (seen.free) await pause(systemClock, { timeoutMs: jittered(BETWEEN_LOOKS_MS), signals: [signal] });
      }
    } catch {
      // The core asks by itself meanwhile.
    }
    const heard = this.hears;
    this.hears = false;
    return heard;
  }

  #query(index: number, stop: AbortSignal): Promise<{ readonly index: number; readonly free: boolean }> {
    const query = { index, waitMs: QUERY_MS };
    return withDeadline(ANSWER_MS, (late) =>
      this.commands.readChange(this.name, query, AbortSignal.any([stop, late])),
    );
  }
}
