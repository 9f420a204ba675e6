import { Redis } from 'ioredis';

const CONNECT_WITHIN_MS = 3_000;

/** Rejects, and says why, unless a Redis server answers at this address. */
export async function requireRedis(url: string): Promise<void> {
  const client = new Redis(url, {
    lazyConnect: true,
    connectTimeout: CONNECT_WITHIN_MS,
    commandTimeout: CONNECT_WITHIN_MS,
    retryStrategy: () => null,
  });
  let lastError: Error | undefined;
  client.on('error', (error: Error) => (lastError = error)); // says more than the rejection
  try {
    await client.connect();
    await client.ping();
  } catch (error) {
    throw lastError ?? error;
  } finally {
    client.disconnect();
  }
}
