import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

/** A way to a server of HTTP on which single commands can be made to fail. */
export interface CommandProxy {
  readonly url: string;
  /** Paths of the commands that came by, oldest first. */
  readonly commands: readonly string[];
  /** The command at this place in {@link commands} is carried out, and its answer never arrives: the connection breaks. */
  loseAnswer(place: number): void;
  /** Commands at this place and after it arrive this much later. */
  delayFrom(place: number, delayMs: number): void;
  stop(): Promise<void>;
}

export async function startCommandProxy(targetUrl: string): Promise<CommandProxy> {
  const commands: string[] = [];
  let lost = -1;
  let delayed = { from: Infinity, byMs: 0 };

  async function pass(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const place = commands.push(incoming.url ?? '') - 1;
    const body = await buffer(incoming);
    if (place >= delayed.from) await sleep(delayed.byMs);
    const { method, headers } = incoming;
    const forwarded = request(new URL(incoming.url ?? '', targetUrl), { method, headers, agent: false });
    outgoing.on('close', () => forwarded.destroy());
    forwarded.on('error', () => outgoing.destroy());
    forwarded.on('response', (answer) => {
      if (place === lost) return void answer.resume().on('end', () => outgoing.destroy());
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    forwarded.end(body);
  }

  const server = createServer((incoming, outgoing) => void pass(incoming, outgoing));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    commands,
    loseAnswer: (place) => (lost = place),
    delayFrom: (from, byMs) => (delayed = { from, byMs }),
    async stop() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
