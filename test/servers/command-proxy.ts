import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** A way to a server of HTTP on which single commands can be made to fail. */
export interface CommandProxy {
  readonly url: string;
  /** Paths of the commands that came by, oldest first. */
  readonly commands: readonly string[];
  /** The command at this place in {@link commands} is carried out, and its answer never arrives: the connection breaks. */
  loseAnswer(place: number): void;
  /** The command at this place arrives when the returned function is called, also when nobody waits for it any more. */
  hold(place: number): () => void;
  /** Resolves when all commands that came by have arrived, and been answered or broken off. */
  passed(): Promise<void>;
  stop(): Promise<void>;
}

export async function startCommandProxy(targetUrl: string): Promise<CommandProxy> {
  const commands: string[] = [];
  let lost = -1;
  const held = new Map<number, Promise<void>>();
  const passing = new Set<Promise<void>>();

  async function pass(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const place = commands.push(incoming.url ?? '') - 1;
    const body = await buffer(incoming);
    await held.get(place);
    const { method, headers } = incoming;
    const forwarded = request(new URL(incoming.url ?? '', targetUrl), { method, headers, agent: false });
    outgoing.on('close', () => forwarded.destroy());
    forwarded.on('error', () => outgoing.destroy());
    forwarded.on('response', (answer) => {
      if (place === lost) return void answer.resume().on('end', () => outgoing.destroy());
      if (outgoing.destroyed) return void answer.resume();
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    forwarded.end(body);
    await new Promise((resolve) => forwarded.on('close', resolve));
  }

  const server = createServer((incoming, outgoing) => {
    const broken = (): void => void outgoing.destroy(); // whoever asked has gone in the middle of it
    const each = pass(incoming, outgoing)
      .catch(broken)
      .finally(() => passing.delete(each));
    passing.add(each);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    commands,
    loseAnswer: (place) => (lost = place),
    hold(place) {
      let letGo!: () => void;
      held.set(place, new Promise((resolve) => (letGo = resolve)));
      return letGo;
    },
    passed: async () => void (await Promise.all(passing)),
    async stop() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
