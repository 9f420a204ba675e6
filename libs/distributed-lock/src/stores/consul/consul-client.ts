import { setMaxListeners } from 'node:events';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';

import type { ConsulAnswer } from './consul-answer.js';

/** PEM texts, as `node:tls` takes them. */
export interface ConsulTls {
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
}

/** Where Consul is, and how to get in. */
export interface ClientSettings {
  readonly url: URL;
  readonly token?: string | undefined;
  readonly tls?: ConsulTls | undefined;
  /** Half of them, rounded down, are for queries that wait. */
  readonly maxConnections: number;
}

export interface ConsulRequest {
  readonly method: 'GET' | 'PUT';
  /** With its query, behind `/v1/`. */
  readonly path: string;
  readonly body?: object;
}

const TCP_KEEP_ALIVE_MS = 10_000;

/** Consul's HTTP API: nothing is sent twice, and the caller decides whether to try again. */
export class ConsulClient {
  /** How many queries may wait at once. */
  readonly maxWaiting: number;
  readonly #commands: HttpAgent;
  /** Connections of their own, so that queries which wait never keep a command from being sent. */
  readonly #waiting: HttpAgent;
  #closed = false;

  constructor(private readonly settings: ClientSettings) {
    this.maxWaiting = Math.floor(settings.maxConnections / 2);
    this.#commands = this.#agentOf(settings.maxConnections - this.maxWaiting);
    this.#waiting = this.#agentOf(this.maxWaiting);
  }

  /** For messages: says where the agent is, and no token. */
  get address(): string {
    return this.settings.url.origin;
  }

  /** Whatever the agent says to a command. */
  ask(request: ConsulRequest, signal: AbortSignal): Promise<ConsulAnswer> {
    return this.#exchange(request, this.#commands, signal);
  }

  /** Same for one whose answer takes its time. */
  askAndWait(request: ConsulRequest, signal: AbortSignal): Promise<ConsulAnswer> {
    return this.#exchange(request, this.#waiting, signal);
  }

  close(): void {
    this.#closed = true;
    this.#commands.destroy();
    this.#waiting.destroy();
  }

  #agentOf(maxSockets: number): HttpAgent {
    const limits = { keepAlive: true, keepAliveMsecs: TCP_KEEP_ALIVE_MS, maxSockets };
    const { url, tls } = this.settings;
    return url.protocol === 'https:' ? new HttpsAgent({ ...limits, ...tls }) : new HttpAgent(limits);
  }

  async #exchange(request: ConsulRequest, agent: HttpAgent, signal: AbortSignal): Promise<ConsulAnswer> {
    if (this.#closed) throw new Error('this Consul store is closed');
    setMaxListeners(0, signal); // one deadline ends many commands
    const response = await this.#send(request, agent, signal);
    const body = await text(response);
    const index = Number(response.headers['x-consul-index']);
    return { status: response.statusCode ?? 0, body, index: Number.isSafeInteger(index) ? index : null };
  }

  #send(
    { method, path, body }: ConsulRequest,
    agent: HttpAgent,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const url = new URL(`/v1/${path}`, this.settings.url);
    const { token } = this.settings;
    const headers = { 'content-type': 'application/json', ...(token && { 'x-consul-token': token }) };
    return new Promise((resolve, reject) => {
      const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
      const sent = send(url, { method, headers, agent, signal });
      sent.once('response', resolve).on('error', reject);
      sent.once('socket', (socket) => socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS));
      sent.end(body && JSON.stringify(body));
    });
  }
}
