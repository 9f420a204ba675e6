import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

const [FIRST, BEYOND] = [12_000, 32_000];
/** Each worker of the test runner has every so many-th port to itself. */
const SHARES = 16;
const given = new Set<number>();

/**
 * A loopback port that nobody listens on, below the range that systems take the ports of outgoing connections from: a
 * server that is down for a moment must find its port free when it comes back. Nobody else in this test run is given
 * it, so it is still free when it is used.
 */
export async function freePort(): Promise<number> {
  const share = Number(process.env['JEST_WORKER_ID'] ?? 0) % SHARES;
  const port = FIRST + SHARES * randomInt((BEYOND - FIRST) / SHARES) + share;
  if (given.has(port)) return freePort();
  given.add(port); // before the look, during which somebody else may ask
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
