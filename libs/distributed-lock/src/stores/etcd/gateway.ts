import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';

import { EtcdError, isAuthExpired, isUnavailable, parseLines, type GatewayLine } from './gateway-answer.js';

/** Where etcd is, and how to get in. */
export interface GatewaySettings {
  readonly hosts: readonly URL[];
  readonly auth?: EtcdCredentials | undefined;
  readonly tls?: EtcdTls | undefined;
}

export interface EtcdCredentials {
  readonly username: string;
  readonly password: string;
}

/** PEM texts, as `node:tls` takes them. */
export interface EtcdTls {
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
}

/** More wait for one another; a server that hangs must not cost a connection for each command. */
const MAX_CONNECTIONS = 32;
const TCP_KEEP_ALIVE_MS = 10_000;

/**
 * etcd's JSON gateway: one POST for one command.
 *
 * Nothing is sent twice, except what etcd refused for want of a valid login. When a host fails, the next command goes to
 * the next one, and the caller decides whether to try again.
 */
export class Gateway {
  readonly #agent: HttpAgent;
  #current = 0;
  #closed = false;
  #token: Promise<string> | undefined;

  constructor(private readonly settings: GatewaySettings) {
    const limits = { keepAlive: true, keepAliveMsecs: TCP_KEEP_ALIVE_MS, maxSockets: MAX_CONNECTIONS };
    this.#agent = this.#secure ? new HttpsAgent({ ...limits, ...settings.tls }) : new HttpAgent(limits);
  }

  /** For messages: says where the servers are, and no password. */
  get address(): string {
    return this.settings.hosts.map(({ origin }) => origin).join(', ');
  }

  /** The answer to a command that has exactly one. */
  async ask(path: string, command: object, signal: AbortSignal): Promise<object> {
    const [answer] = await this.askEach(path, [command], signal);
    if (!answer) throw new EtcdError(`${path} was answered with nothing`, undefined);
    return answer;
  }

  /**
   * An answer for each of `commands`, in order, for the streaming calls, which take several in one request. The last ones may
   * be missing: the gateway's HTTP server stops reading a request that comes in pieces once it has begun to answer it.
   */
  async askEach(path: string, commands: readonly object[], signal: AbortSignal): Promise<object[]> {
    const body = commands.map((command) => JSON.stringify(command)).join('\n');
    const answers = await this.#withLogin((token) => this.#post(path, body, token, signal), signal);
    return answers.map((line) => line.result ?? line);
  }

  /** An answer that goes on; resolves once it has begun. It has a connection of its own. */
  stream(path: string, command: object, signal: AbortSignal): Promise<IncomingMessage> {
    const body = JSON.stringify(command);
    return this.#withLogin((token) => this.#send(path, body, token, { signal, agent: false }), signal);
  }

  close(): void {
    this.#closed = true;
    this.#agent.destroy();
  }

  get #secure(): boolean {
    return this.settings.hosts.some(({ protocol }) => protocol === 'https:');
  }

  async #withLogin<T>(send: (token: string | undefined) => Promise<T>, signal: AbortSignal): Promise<T> {
    const { auth } = this.settings;
    if (!auth) return send(undefined);
    try {
      return await send(await this.#login(auth, signal));
    } catch (error) {
      if (!isAuthExpired(error)) throw error;
      this.#token = undefined;
      return send(await this.#login(auth, signal));
    }
  }

  #login({ username, password }: EtcdCredentials, signal: AbortSignal): Promise<string> {
    const login = async (): Promise<string> => {
      const body = JSON.stringify({ name: username, password });
      const [answer] = await this.#post('auth/authenticate', body, undefined, signal);
      return String((answer as { token?: unknown } | undefined)?.token);
    };
    const token = (this.#token ??= login());
    token.catch(() => {
      if (this.#token === token) this.#token = undefined; // the next command logs in anew
    });
    return token;
  }

  async #post(
    path: string,
    body: string,
    token: string | undefined,
    signal: AbortSignal,
  ): Promise<GatewayLine[]> {
    const response = await this.#send(path, body, token, { signal, agent: this.#agent });
    return parseLines(await text(response));
  }

  async #send(
    path: string,
    body: string,
    token: string | undefined,
    how: { readonly signal: AbortSignal; readonly agent: HttpAgent | false },
  ): Promise<IncomingMessage> {
    if (this.#closed) throw new Error('this etcd store is closed');
    const used = this.#current;
    try {
      const response = await this.#request(this.#urlOf(used, path), body, token, how);
      if (response.statusCode === 200) return response;
      throw errorOf(await text(response), path, response.statusCode);
    } catch (error) {
      if (isUnavailable(error) && this.#current === used)
        this.#current = (used + 1) % this.settings.hosts.length;
      throw error;
    }
  }

  #urlOf(host: number, path: string): URL {
    return new URL(`/v3/${path}`, this.settings.hosts[host]);
  }

  #request(
    url: URL,
    body: string,
    token: string | undefined,
    how: { readonly signal: AbortSignal; readonly agent: HttpAgent | false },
  ): Promise<IncomingMessage> {
    const headers = { 'content-type': 'application/json', ...(token && { authorization: token }) };
    const options = { ...how, ...(how.agent ? {} : this.settings.tls), method: 'POST', headers };
    return new Promise((resolve, reject) => {
      const request = url.protocol === 'https:' ? httpsRequest(url, options) : httpRequest(url, options);
      request.once('response', resolve).on('error', reject);
      request.once('socket', (socket) => socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS));
      request.end(body);
    });
  }
}

function errorOf(body: string, path: string, status: number | undefined): Error {
  try {
    parseLines(body);
  } catch (error) {
    if (error instanceof EtcdError) return error;
  }
  return new EtcdError(`${path} was answered with HTTP status ${status}`, undefined);
}
