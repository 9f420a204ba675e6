import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { freePort } from './free-port.js';

/** A network path to a server that can be made to fail. */
export interface TcpProxy {
  /** Connect here, on 127.0.0.1, instead of to the server. */
  readonly port: number;
  /** Breaks every connection and refuses new ones until {@link heal}. */
  cut(): void;
  /** Leads to another server from now on, as the address of a load balancer does. Connections to the former one are broken. */
  switchTo(targetPort: number): void;
  /** Holds all bytes, both ways, and all ends of connections: nothing is lost and nothing arrives until {@link thaw}. */
  freeze(): void;
  thaw(): void;
  /**
   * The next `count` chunks of the server's answers, or those after `passing` more, never arrive, although the server has done what was asked. A connection
   * that lost one stays silent from then on (a stream has no holes) until the client ends it, or {@link heal} does.
   */
  dropReplies(count: number, passing?: number): void;
  /** False once all that were to be dropped have been. */
  readonly dropsReplies: boolean;
  /** Answers arrive this much later, in order, from now on. 0 ends the delay. */
  delayReplies(delayMs: number): void;
  /** Ends every fault: silent connections are broken, so that clients connect anew. Resolves when it listens again. */
  heal(): Promise<void>;
  /** Ends it and all its connections. Twice is harmless. */
  stop(): Promise<void>;
}

/** Forwards a new loopback port to `targetPort` on 127.0.0.1. */
export async function startProxy(targetPort: number): Promise<TcpProxy> {
  const proxy = new Proxy(targetPort, await freePort());
  await proxy.heal();
  return proxy;
}

class Proxy implements TcpProxy {
  readonly #links = new Set<Link>();
  readonly #listener: Server;
  #frozen = false;
  #repliesToDrop = 0;
  #repliesToPass = 0;
  #replyDelayMs = 0;

  constructor(
    private targetPort: number,
    readonly port: number,
  ) {
    this.#listener = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) =>
      this.#accept(client),
    );
  }

  cut(): void {
    this.#listener.close();
    for (const link of this.#links) link.destroy();
  }

  switchTo(targetPort: number): void {
    this.targetPort = targetPort;
    for (const link of this.#links) link.destroy();
  }

  freeze(): void {
    this.#frozen = true;
    for (const link of this.#links) link.pause();
  }

  thaw(): void {
    this.#frozen = false;
    for (const link of this.#links) link.resume();
  }

  dropReplies(count: number, passing = 0): void {
    this.#repliesToDrop = count;
    this.#repliesToPass = passing;
  }

  get dropsReplies(): boolean {
    return this.#repliesToDrop > 0;
  }

  delayReplies(delayMs: number): void {
    this.#replyDelayMs = delayMs;
  }

  async heal(): Promise<void> {
    this.#repliesToDrop = 0;
    this.#replyDelayMs = 0;
    for (const link of this.#links) if (link.silent) link.destroy();
    this.thaw();
    if (this.#listener.listening) return;
    const listening = once(this.#listener, 'listening');
    this.#listener.listen(this.port, '127.0.0.1');
    await listening;
  }

  async stop(): Promise<void> {
    const closed = this.#listener.listening ? once(this.#listener, 'close') : undefined;
    this.cut();
    await closed;
  }

  #drops(): boolean {
    if (this.#repliesToDrop === 0 || this.#repliesToPass-- > 0) return false;
    this.#repliesToDrop -= 1;
    return true;
  }

  #accept(client: Socket): void {
    const link = new Link(
      client,
      connect({ port: this.targetPort, host: '127.0.0.1', allowHalfOpen: true }),
      {
        drops: () => this.#drops(),
        delayMs: () => this.#replyDelayMs,
        ended: () => this.#links.delete(link),
      },
    );
    this.#links.add(link);
    if (!this.#frozen) link.resume();
  }
}

interface Faults {
  /** Asked once per chunk of an answer. */
  drops(): boolean;
  delayMs(): number;
  ended(): void;
}

/** One connection through the proxy. It starts paused. */
class Link {
  silent = false;
  #paused = true;
  /** Steps towards the client, in order: chunks and at last its end. */
  readonly #outbox: { readonly dueMs: number; readonly deliver: () => void }[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly client: Socket,
    private readonly server: Socket,
    private readonly faults: Faults,
  ) {
    server.pause();
    client.on('data', (chunk) => server.write(chunk)).on('end', () => server.end());
    server.on('data', (chunk) => this.#reply(chunk)).on('end', () => this.#post(() => client.end()));
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.on('error', () => this.destroy()).on('close', () => this.#closed());
    }
  }

  pause(): void {
    this.#paused = true;
    this.client.pause();
    this.server.pause();
    clearTimeout(this.#timer);
  }

  resume(): void {
    this.#paused = false;
    this.client.resume();
    this.server.resume();
    this.#deliverDue();
  }

  destroy(): void {
    clearTimeout(this.#timer);
    this.#outbox.length = 0;
    // A reset that meets an end on its way fails, and leaves its handle open for ever.
    if (this.client.writableEnded || this.client.destroyed) this.client.destroy();
    else this.client.resetAndDestroy();
    this.server.destroy();
    this.faults.ended();
  }

  #reply(chunk: Buffer): void {
    this.silent ||= this.faults.drops();
    if (!this.silent) this.#post(() => this.client.write(chunk));
  }

  #post(deliver: () => void): void {
    this.#outbox.push({ dueMs: performance.now() + this.faults.delayMs(), deliver });
    this.#deliverDue();
  }

  #deliverDue(): void {
    clearTimeout(this.#timer);
    if (this.#paused) return;
    const nowMs = performance.now();
    while (this.#outbox[0] && this.#outbox[0].dueMs <= nowMs) this.#outbox.shift()?.deliver();
    const next = this.#outbox[0];
    if (next) this.#timer = setTimeout(() => this.#deliverDue(), Math.ceil(next.dueMs - nowMs));
  }

  #closed(): void {
    if (this.client.destroyed && this.server.destroyed) this.destroy();
    else if (this.client.destroyed) this.server.destroy();
    else if (this.#outbox.length === 0) this.client.end();
  }
}
