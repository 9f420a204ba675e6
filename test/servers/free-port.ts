import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * A loopback port that nobody listens on, below the range that systems take the ports of outgoing connections from: a server
 * that is down for a moment must find its port free when it comes back.
 */
export async function freePort(): Promise<number> {
  const port = randomInt(12_000, 32_000);
  return (await canListen(port)) ? port : freePort();
}

async function canListen(port: number): Promise<boolean> {
  const probe = createServer();
  try {
    const listening = once(probe, 'listening');
    probe.listen(port, '127.0.0.1');
    await listening;
  } catch {
    return false; // taken: the caller tries another
  }
  const closed = once(probe, 'close');
  probe.close();
  await closed;
  return true;
}
