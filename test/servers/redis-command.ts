import { Redis } from 'ioredis';

const PATIENCE_MS = 5_000;

/** Sends one command to one server, on a connection of its own. @throws its refusal, or that nothing answers */
export async function redisCommand(port: number, ...command: [string, ...string[]]): Promise<unknown> {
  const client = new Redis(port, '127.0.0.1', {
    lazyConnect: true,
    retryStrategy: () => null,
    connectTimeout: PATIENCE_MS,
    commandTimeout: PATIENCE_MS,
    enableReadyCheck: false,
  });
  client.on('error', () => undefined); // the command rejects as well
  try {
    const [name, ...args] = command;
    return await client.call(name, ...args);
  } finally {
    client.disconnect();
  }
}
