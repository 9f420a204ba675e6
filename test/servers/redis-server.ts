import { once } from 'node:events';
import { connect } from 'node:net';
import { startServer, type TestServer } from './private-server.js';

export type RedisServer = TestServer;

export interface RedisServerOptions {
  /** Writes every command to a file before it answers, so that data survives `kill()`. Default: memory only. */
  readonly appendOnly?: boolean;
  /** More of its settings, as on its command line. */
  readonly settings?: readonly string[];
}

/** A Redis server of your own; `stop()` it when done. */
export function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  return startServer({
    kind: 'redis',
    url: (host, port) => `redis://${host}:${port}`,
    command: ({ folder, port }) => ({ program: 'redis-server', args: redisArguments(folder, port, options) }),
    ask: ping,
  });
}

function redisArguments(
  folder: string,
  port: number,
  { appendOnly = false, settings = [] }: RedisServerOptions,
): string[] {
  // Without fsync the write still reaches the operating system before the answer: it outlives SIGKILL.
  const persistence = appendOnly ? ['--appendonly', 'yes', '--appendfsync', 'no'] : ['--appendonly', 'no'];
  const address = ['--bind', '127.0.0.1', '--port', String(port)];
  return [...address, '--dir', folder, '--daemonize', 'no', '--save', '', ...persistence, ...settings];
}

/** Rejects unless whoever listens there answers as Redis does. */
export async function ping(host: string, port: number): Promise<void> {
  const socket = connect(port, host);
  try {
    socket.write('PING\r\n');
    const [answer] = (await once(socket, 'data', { signal: AbortSignal.timeout(1_000) })) as [Buffer];
    if (!answer.toString().startsWith('+PONG')) throw new Error(answer.toString());
  } finally {
    socket.destroy();
  }
}
