import { setMaxListeners } from 'node:events';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';

import { ConsulError, type ConsulAnswer } from './consul-answer.js';
import { Places } from './places.js';

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
/** Far beyond the longest value that servers keep, unless they are told otherwise. */
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;

const CLOSED = 'this Consul store is closed';

/** Node's agent would keep what waits for a connection beyond its deadline, and send it after the store was closed. */
interface Connections {
  readonly places: Places;
  readonly agent: HttpAgent;
}

/** Consul's HTTP API: nothing is sent twice, and the caller decides whether to try again. */
export class ConsulClient {
  /** How many queries may wait at once. */
  readonly maxWaiting: number;
  readonly #commands: Connections;
  /** Connections of their own, so that queries which wait never keep a command from being sent. */
  readonly #waiting: Connections;
  #closed = false;

  constructor(private readonly settings: ClientSettings) {
    this.maxWaiting = Math.floor(settings.maxConnections / 2);
    this.#commands = this.#connections(settings.maxConnections - this.maxWaiting);
    this.#waiting = this.#connections(this.maxWaiting);
  }

  /** For messages: says where the agent is, and no token. */
  get address(): string {
    return this.settings.url.origin;
  }

  /**
   * Whatever the agent says to a command. `answerSignal` is for those whose answer matters to others when nobody waits any
   * more: `signal` then ends the wait for a connection alone.
   */
  ask(request: ConsulRequest, signal: AbortSignal, answerSignal = signal): Promise<ConsulAnswer> {
    return this.#exchange(this.#commands, signal, (agent) => this.#answerTo(request, agent, answerSignal));
  }

  /** Same for one whose answer takes its time. */
  askAndWait(request: ConsulRequest, signal: AbortSignal): Promise<ConsulAnswer> {
    return this.#exchange(this.#waiting, signal, (agent) => this.#answerTo(request, agent, signal));
  }

  close(): void {
    this.#closed = true;
    for (const { places, agent } of [this.#commands, this.#waiting]) {
      places.sendAway(new Error(CLOSED));
      agent.destroy();
    }
  }

  #connections(count: number): Connections {
    return { places: new Places(count), agent: this.#agentOf(count) };
  }

  #agentOf(maxSockets: number): HttpAgent {
    const limits = { keepAlive: true, keepAliveMsecs: TCP_KEEP_ALIVE_MS, maxSockets };
    const { url, tls } = this.settings;
    return url.protocol === 'https:' ? new HttpsAgent({ ...limits, ...tls }) : new HttpAgent(limits);
  }

  async #exchange(
    { places, agent }: Connections,
    signal: AbortSignal,
    work: (agent: HttpAgent) => Promise<ConsulAnswer>,
  ): Promise<ConsulAnswer> {
    if (this.#closed) throw new Error(CLOSED);
    setMaxListeners(0, signal); // one deadline ends many commands
    return places.take(signal, () => work(agent));
  }

  async #answerTo(request: ConsulRequest, agent: HttpAgent, signal: AbortSignal): Promise<ConsulAnswer> {
    const response = await this.#send(request, agent, signal);
    const body = await textOf(response);
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
      sent.once('close', () => reject(new Error('the connection ended without an answer'))); // as after a status of 101
      sent.once('socket', (socket) => socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS));
      sent.end(body && JSON.stringify(body));
    });
  }
}

/** @throws {ConsulError} it goes on and on */
async function textOf(response: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of response as AsyncIterable<Buffer>) {
    length += part.length;
    if (length > LARGEST_ANSWER_BYTES) {
      throw new ConsulError(
        `the answer is none of Consul's: longer than ${LARGEST_ANSWER_BYTES} bytes`,
        undefined,
      );
    }
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}
