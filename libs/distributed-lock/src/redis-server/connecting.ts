/** What an ioredis `Redis` and an ioredis `Cluster` have in common. */
export interface Connectable {
  readonly status: string;
  connect(): Promise<void>;
  disconnect(reconnect?: boolean): void;
  on(event: string, listener: (error: Error) => void): unknown;
  off(event: string, listener: (error: Error) => void): unknown;
}

/** A server that is gone never answers the goodbye. */
export const GOODBYE_MS = 500;

/** Whether a client of our own can be used, and the wait for it while it connects. */
export class Connecting {
  #connecting: Promise<void> | undefined;
  #lastError: Error | undefined;

  constructor(
    private readonly client: Connectable,
    private readonly address: string,
  ) {
    client.on('error', (error: Error) => (this.#lastError = error));
    client.on('ready', () => (this.#lastError = undefined));
  }

  /** Waits for a connection that is being made; one that has failed is not worth waiting for. */
  async ready(timeoutMs: number): Promise<void> {
    if (this.client.status === 'wait') this.client.connect().catch(() => undefined); // told by the 'error' event
    if (this.client.status === 'connecting' || this.client.status === 'connect') {
      this.#connecting ??= this.#next(['ready', 'error', 'close', 'end'], timeoutMs).finally(
        () => (this.#connecting = undefined),
      );
      await this.#connecting;
    }
    if (this.client.status === 'ready') return;
    throw new Error(`not connected to ${this.address}`, { cause: this.#lastError });
  }

  async close(): Promise<void> {
    const { status } = this.client;
    const goodbye = status === 'ready' || status === 'connect' || status === 'connecting';
    const ended = goodbye ? this.#next(['end'], GOODBYE_MS * 2) : undefined;
    this.client.disconnect();
    await ended;
  }

  #next(events: readonly string[], timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const settle = (): void => {
        clearTimeout(timer);
        for (const event of events) this.client.off(event, settle);
        resolve();
      };
      const timer = setTimeout(settle, timeoutMs);
      for (const event of events) this.client.on(event, settle);
    });
  }
}
