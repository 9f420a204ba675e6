import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { startProxy, type TcpProxy } from './index.js';

/** Answers every chunk with itself and remembers it. */
interface Echo {
  readonly port: number;
  readonly received: string[];
  readonly server: Server;
}

async function startEcho(): Promise<Echo> {
  const received: string[] = [];
  const server = createServer((socket) =>
    socket
      .on('data', (chunk) => {
        received.push(chunk.toString());
        socket.write(chunk);
      })
      .on('error', () => undefined),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port, received, server };
}

/** Unlike `once`, content with a broken connection. */
function closing(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

describe('startProxy', () => {
  let echo: Echo;
  let proxy: TcpProxy;
  const clients: Socket[] = [];

  beforeEach(async () => {
    echo = await startEcho();
    proxy = await startProxy(echo.port);
  });

  afterEach(async () => {
    for (const client of clients.splice(0)) client.destroy();
    await proxy.stop();
    echo.server.close();
    await once(echo.server, 'close');
  });

  async function client(): Promise<Socket> {
    const socket = connect(proxy.port, '127.0.0.1');
    clients.push(socket);
    await once(socket, 'connect');
    socket.on('error', () => undefined);
    return socket;
  }

  async function ask(socket: Socket, text: string): Promise<string> {
    const answer = once(socket, 'data');
    socket.write(text);
    return String((await answer)[0]);
  }

  /** Resolves when the proxy has had the answer to `text`: one that another client asked for later has arrived. */
  async function echoed(text: string): Promise<void> {
    while (echo.received.at(-1) !== text) await new Promise(setImmediate);
    const other = connect(echo.port, '127.0.0.1');
    clients.push(other);
    await ask(other, 'meanwhile');
    await new Promise(setImmediate);
  }

  /** What arrives within a moment; null: nothing. */
  async function askBriefly(socket: Socket, text: string): Promise<string | null> {
    const silence = new Promise<null>((resolve) => setTimeout(resolve, 100, null));
    return Promise.race([ask(socket, text), silence]);
  }

  it('forwards both ways', async () => {
    expect(await ask(await client(), 'hello')).toBe('hello');
  });

  it('breaks connections and refuses new ones while cut, and accepts them again when healed', async () => {
    const socket = await client();
    await ask(socket, 'before');
    const closed = closing(socket);
    proxy.cut();
    await closed;
    await expect(client()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    await proxy.heal();
    expect(await ask(await client(), 'after')).toBe('after');
  });

  it('holds requests while frozen and delivers them when thawed', async () => {
    const socket = await client();
    await ask(socket, 'before');
    proxy.freeze();
    const answer = ask(socket, 'frozen');
    expect(await Promise.race([answer, new Promise((resolve) => setTimeout(resolve, 100, 'silence'))])).toBe(
      'silence',
    );
    expect(echo.received).toEqual(['before']);
    proxy.thaw();
    expect(await answer).toBe('frozen');
  });

  it('accepts connections while frozen, and serves them when thawed', async () => {
    proxy.freeze();
    const socket = await client();
    expect(await askBriefly(socket, 'frozen')).toBeNull();
    proxy.thaw();
    expect(String((await once(socket, 'data'))[0])).toBe('frozen');
  });

  it('drops an answer although the server has had the request, and keeps that connection silent until healed', async () => {
    const [unlucky, lucky] = [await client(), await client()];
    proxy.dropReplies(1);
    const heard: string[] = [];
    unlucky.on('data', (chunk) => heard.push(String(chunk)));
    for (const text of ['lost', 'also']) {
      unlucky.write(text);
      await echoed(text);
    }
    expect(await ask(lucky, 'fine')).toBe('fine');
    expect(heard).toEqual([]);
    const closed = closing(unlucky);
    await proxy.heal();
    await closed;
    expect(await ask(lucky, 'still')).toBe('still');
  });

  it('delays answers, in order', async () => {
    const socket = await client();
    await ask(socket, 'warm');
    proxy.delayReplies(300);
    const startedMs = performance.now();
    let text = '';
    socket.on('data', (chunk) => (text += String(chunk)));
    socket.write('a');
    await echoed('a');
    proxy.delayReplies(0);
    socket.write('b');
    while (text.length < 2) await once(socket, 'data');
    expect(text).toBe('ab');
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(299);
  });

  it('breaks connections and leads to another server when it is switched to that', async () => {
    const socket = await client();
    await ask(socket, 'to the former');
    const closed = closing(socket);
    const former = echo;
    echo = await startEcho();
    proxy.switchTo(echo.port);
    await closed;
    await ask(await client(), 'to the latter');
    expect([former.received, echo.received]).toEqual([['to the former'], ['to the latter']]);
    former.server.close();
    await once(former.server, 'close');
  });

  it('passes the end of a connection on, from either side', async () => {
    const socket = await client();
    await ask(socket, 'hello');
    const closed = closing(socket);
    socket.end();
    await closed;
    expect(await new Promise((resolve) => echo.server.getConnections((_, count) => resolve(count)))).toBe(0);
  });

  it('breaks the connection when the server is not there', async () => {
    echo.server.close();
    await once(echo.server, 'close');
    const socket = connect(proxy.port, '127.0.0.1').on('error', () => undefined);
    await closing(socket);
    echo = await startEcho();
  });

  it('may be stopped twice', async () => {
    await proxy.stop();
    await proxy.stop();
  });
});
