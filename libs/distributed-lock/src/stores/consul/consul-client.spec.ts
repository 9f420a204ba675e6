import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { ConsulClient } from './consul-client.js';

const never = new AbortController().signal;
const get = { method: 'GET', path: 'kv/a' } as const;

describe('the connections to an agent', () => {
  let agent: Server | undefined;
  let client: ConsulClient;
  afterEach(() => {
    client.close();
    agent?.close();
    agent?.closeAllConnections();
  });

  /** @returns what it was asked for */
  async function begin(listener: RequestListener, maxConnections: number): Promise<string[]> {
    const asked: string[] = [];
    agent = createServer((incoming, outgoing) => {
      asked.push(incoming.url ?? '');
      listener(incoming, outgoing);
    });
    agent.listen(0, '127.0.0.1');
    await once(agent, 'listening');
    const url = new URL(`http://127.0.0.1:${(agent.address() as AddressInfo).port}`);
    client = new ConsulClient({ url, maxConnections });
    return asked;
  }

  it('are not waited for beyond the deadline of a command, which is then never sent', async () => {
    const asked = await begin(() => undefined, 2); // one for commands
    const first = client.ask(get, never).catch((error: unknown) => error);
    await until(() => asked.length === 1);
    const late = new AbortController();
    const second = client.ask({ method: 'PUT', path: 'txn' }, late.signal);
    late.abort(new Error('too late'));
    await expect(second).rejects.toThrow('too late');
    await expect(client.ask(get, late.signal)).rejects.toThrow('too late');
    agent?.closeAllConnections();
    expect(String(await first)).toMatch(/hang up|reset/i);
    expect(asked).toEqual(['/v1/kv/a']);
  });

  it('serve commands in their order, no more at once than there are of them, also after some have failed', async () => {
    let most = 0;
    const inside: (() => void)[] = [];
    const asked = await begin((incoming, outgoing) => {
      inside.push(() => void (incoming.url?.endsWith('7') ? outgoing.destroy() : outgoing.end('yes')));
      if (inside.length < 2) return; // nobody is answered alone
      setTimeout(() => {
        most = Math.max(most, inside.length);
        for (const answer of inside.splice(0)) answer();
      }, 2);
    }, 4);
    const paths = Array.from({ length: 40 }, (_, i) => `kv/${i}`);
    const said = await Promise.allSettled(paths.map((path) => client.ask({ method: 'GET', path }, never)));
    expect(said.filter(({ status }) => status === 'fulfilled')).toHaveLength(36);
    expect(most).toBe(2);
    expect([...asked].sort()).toEqual(paths.map((path) => `/v1/${path}`).sort());
  });

  it('end with the client: nothing that waited for one is sent afterwards', async () => {
    const asked = await begin(() => undefined, 2);
    const all = Array.from({ length: 5 }, () => client.ask(get, never).catch((error: unknown) => error));
    await until(() => asked.length === 1);
    client.close();
    expect((await Promise.all(all)).map(String).slice(1)).toEqual(
      Array.from({ length: 4 }, () => expect.stringContaining('closed')),
    );
    await new Promise((resolve) => setTimeout(resolve, 50)); // a connection that is made anew takes less
    expect(asked).toHaveLength(1);
  });

  it('are not filled by an answer that goes on and on', async () => {
    await begin((_, outgoing) => {
      const more = (): void => void (outgoing.destroyed || outgoing.write('x'.repeat(65_536), more));
      more();
    }, 2);
    await expect(client.ask(get, AbortSignal.timeout(30_000))).rejects.toThrow('longer than 4194304 bytes');
  });

  it('are given back by an answer that begins another protocol', async () => {
    await begin((incoming) => {
      incoming.socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
    }, 2);
    for (let i = 0; i < 3; i += 1) await expect(client.ask(get, never)).rejects.toThrow('without an answer');
  });

  it('are kept for the answer alone once a command was sent that nobody waits for', async () => {
    let answer = (): void => undefined;
    const asked = await begin((_, outgoing) => void (answer = () => outgoing.end('late')), 2);
    const givenUp = new AbortController();
    const answered = client.ask(get, givenUp.signal, never);
    await until(() => asked.length === 1);
    givenUp.abort();
    answer();
    expect(await answered).toMatchObject({ status: 200, body: 'late' });
  });
});

async function until(condition: () => boolean): Promise<void> {
  const endsAtMs = performance.now() + 30_000;
  while (!condition() && performance.now() < endsAtMs) await new Promise((resolve) => setTimeout(resolve, 2));
  expect(condition()).toBe(true);
}
