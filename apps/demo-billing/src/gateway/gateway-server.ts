import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

import { parseChargeRequest, toJson, type ChargeRequest } from './charge.js';
import type { ChargeAnswer, Ledger } from './ledger.js';

const STATUS: Readonly<Record<ChargeAnswer['kind'], number>> = {
  charged: 201,
  replayed: 200,
  stale: 409,
  'key-reused': 422,
};

const LARGEST_BODY = 64 * 1024;
/** A worker that slept for some seconds finds its connection as it left it. */
const KEEP_ALIVE_MS = 60_000;

/**
 * The payment gateway: `POST /charges` moves money, `GET /ledger` tells what was moved.
 *
 * `loseAnswersOf`: invoices whose first charge is made and never answered, as networks do at times.
 */
export class GatewayServer {
  readonly #server: Server;
  readonly #losesAnswerOf: Set<string>;

  constructor(
    private readonly ledger: Ledger,
    loseAnswersOf: Iterable<string> = [],
  ) {
    this.#losesAnswerOf = new Set(loseAnswersOf);
    this.#server = createServer((request, response) => void this.#answer(request, response));
    this.#server.keepAliveTimeout = KEEP_ALIVE_MS;
  }

  /** Resolves with the address, on a free port of this machine's loopback. */
  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      if (request.method === 'GET' && request.url === '/ledger') send(response, 200, this.ledger.report());
      else if (request.method === 'POST' && request.url === '/charges') {
        this.#charge(parseChargeRequest(await readBody(request)), response);
      } else send(response, 404, { message: 'POST /charges or GET /ledger' });
    } catch (error) {
      const callersFault = error instanceof TypeError || error instanceof SyntaxError;
      send(response, callersFault ? 400 : 500, { message: (error as Error).message });
    }
  }

  #charge(request: ChargeRequest, response: ServerResponse): void {
    const answer = this.ledger.charge(request);
    if (this.#losesAnswerOf.delete(request.invoiceId)) response.destroy();
    else send(response, STATUS[answer.kind], answer);
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > LARGEST_BODY) throw new TypeError('the body is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(toJson(body));
}
